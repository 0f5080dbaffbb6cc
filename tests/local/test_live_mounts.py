"""Network file systems are known from the kernel's table of mounts, and kept away from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from cachesvc.local import mounts
from cachesvc.local.live import INDUCTOR, live_directory
from cachesvc.local.mounts import file_system, is_noexec, network_file_system

ENVIRONMENT = "0123456789abcdef" * 4

MOUNTS = r"""
22 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 28 0:35 / /home rw,relatime shared:20 - nfs4 filer:/home rw,vers=4.2
41 40 0:36 / /home/me/local rw,relatime - xfs /dev/sdb1 rw
42 28 0:37 / /mnt/with\040space rw,relatime - cifs //server/share rw
43 28 0:38 / /mnt/back\134slash rw,relatime - lustre 10.0.0.1@tcp:/scratch rw
44 28 0:39 / /data rw,relatime - ext4 /dev/sdc1 rw
45 44 0:40 / /data rw,relatime - fuse.s3fs s3fs rw
46 28 0:41 / /lock rw,relatime master:3 propagate_from:2 - tmpfs tmpfs rw
47 28 0:42 / /rootless rw,relatime - fuse.fuse-overlayfs fuse-overlayfs rw
malformed line

48 28
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/usr/lib", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/.cache", "nfs4"),
        ("/homestead", "ext4"),
        ("/home/me/local", "xfs"),
        ("/home/me/local/x", "xfs"),
        ("/home/me/localhost", "nfs4"),
        ("/mnt/with space/x", "cifs"),
        ("/mnt/back\\slash/x", "lustre"),
        ("/data/x", "fuse.s3fs"),
        ("/lock", "tmpfs"),
    ],
)
def test_the_deepest_and_latest_mount_counts(path: str, kind: str) -> None:
    """Whole path parts, escaped names, one mount hiding another, optional fields."""
    assert file_system(Path(path), MOUNTS) == kind


def test_without_a_table_nothing_is_known() -> None:
    """No /proc, or one that says nothing."""
    assert file_system(Path("/home"), "") is None


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        *((kind, True) for kind in ("nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "gpfs")),
        *((kind, True) for kind in ("beegfs", "glusterfs", "9p", "fuse.sshfs", "fuse.juicefs")),
        *((kind, False) for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk")),
        *((kind, False) for kind in ("fuse.fuse-overlayfs", "fuse.gocryptfs", "nfsd", "cephx")),
    ],
)
def test_which_file_systems_are_on_a_network(
    kind: str, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE is taken for a network unless it is known to be local."""
    monkeypatch.setattr(mounts, "_mountinfo", lambda: f"1 1 0:1 / / rw - {kind} x rw")
    assert network_file_system(Path("/anything")) == (kind if network else None)


def test_a_link_to_a_network_is_seen_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """~/.cache is often a link to where there is more room."""
    (tmp_path / "link").symlink_to("/home/me")
    monkeypatch.setattr(mounts, "_mountinfo", lambda: MOUNTS)
    assert network_file_system(tmp_path / "link" / "tccache") == "nfs4"
    assert network_file_system(tmp_path / "tccache") is None


def test_the_real_table_can_be_read() -> None:
    """The kernel's own text for this machine names the file system of /proc."""
    assert file_system(Path("/proc/self"), mounts._mountinfo()) == "proc"
    assert not is_noexec(Path(os.path.realpath("/usr")))


@pytest.fixture
def network_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that the table says is NFS, and a temporary directory that is not."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    _mounted(monkeypatch, tmp_path / "home")
    return tmp_path / "home"


def _mounted(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    lines = ["1 1 0:1 / / rw - ext4 x rw", *(f"2 1 0:2 / {f} rw - nfs4 x rw" for f in folders)]
    monkeypatch.setattr(mounts, "_mountinfo", lambda: "\n".join(lines))


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME"])
def test_a_home_on_a_network_is_passed_over(network_home: Path, name: str) -> None:
    """Compilers lose files on NFS, so the local disk is seeded; nothing is made in the home."""
    live = live_directory(ENVIRONMENT, {name: str(network_home)})
    assert live.chosen_by == "the temporary directory"
    (note,) = live.notes
    assert str(network_home) in note
    assert "network file system (nfs4)" in note
    assert not network_home.exists()


@pytest.mark.parametrize(
    ("environ", "chosen_by"),
    [({"TCCACHE_HOME": ""}, "TCCACHE_HOME"), ({INDUCTOR: "mine"}, INDUCTOR)],
)
def test_a_directory_that_was_asked_for_is_used_with_a_warning(
    network_home: Path, environ: dict[str, str], chosen_by: str
) -> None:
    """Whoever names it gets it, and is told what happens there."""
    paths = {name: str(network_home / below) for name, below in environ.items()}
    live = live_directory(ENVIRONMENT, paths)
    assert live.chosen_by == chosen_by
    assert live.root.is_relative_to(network_home)
    (note,) = live.notes
    assert "is on a network file system (nfs4)" in note
    assert "set TCCACHE_HOME" in note


def test_a_network_home_is_better_than_none(
    network_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary directory cannot be written: the home is used after all, with the warning."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    live = live_directory(ENVIRONMENT, {"HOME": str(network_home)})
    assert live.chosen_by == "HOME"
    assert "was passed over" in live.notes[0]
    assert "is on a network file system (nfs4)" in live.notes[-1]


def test_where_all_is_network_the_home_is_used(
    network_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox whose every file lies on 9p: the temporary directory would be no better."""
    _mounted(monkeypatch, network_home, tmp_path / "tmp")
    live = live_directory(ENVIRONMENT, {"HOME": str(network_home)})
    assert live.chosen_by == "HOME"
    assert len(live.notes) == 1
