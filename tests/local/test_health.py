"""Directories that compilers cannot work in, each with what is wrong; and one that is fit."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.finding import Finding
from cachesvc.local import health, mounts
from cachesvc.local.health import Directory

Mount = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _local_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's disk may be of any kind, and full."""
    monkeypatch.setattr(mounts, "_mountinfo", lambda: "1 1 0:1 / / rw - ext4 x rw")
    monkeypatch.setattr(health, "NEEDED_BYTES", 0)
    monkeypatch.setattr(health, "NEEDED_INODES", 0)


def the_one(folder: Path) -> Finding:
    (found,) = Directory(folder, "TCCACHE_HOME").findings
    return found


def test_a_fit_directory(tmp_path: Path) -> None:
    """Nothing is found, also where it does not exist yet, and nothing is made."""
    assert Directory(tmp_path, "TCCACHE_HOME").findings == ()
    assert Directory(tmp_path / "a" / "b", "the live directory").findings == ()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a byte left, and less than a bundle may need: how much is free is told."""
    monkeypatch.setattr(health, "NEEDED_BYTES", 2_000_000)
    folder = mount("mode=700,size=64k")
    little = the_one(folder)
    (folder / "file").write_bytes(bytes(64 * 1024))
    full = the_one(folder)
    assert (little.kind, little.severity, little.where) == (
        *("space", "disease"),
        f"TCCACHE_HOME={folder}",
    )
    assert little.what == "0.1 MB are free, and a bundle may need 2 MB"
    assert full.what == "0.0 MB are free, and a bundle may need 2 MB"
    assert full.cure == "free space, or choose a directory on another disk (TCCACHE_HOME)"


def test_no_inodes(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with room for no more files."""
    monkeypatch.setattr(health, "NEEDED_INODES", 10)
    found = the_one(mount("mode=700,nr_inodes=8"))
    assert found.kind == "inodes"
    assert "more files can be made, and a bundle may need 10" in found.what


def test_a_size_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network disks say 0 for everything: that is no full disk."""
    monkeypatch.setattr(health, "NEEDED_BYTES", 10)
    monkeypatch.setattr(health, "NEEDED_INODES", 10)
    zeros = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: zeros)
    assert Directory(tmp_path, "TCCACHE_HOME").findings == ()


def test_noexec(mount: Mount) -> None:
    """What is compiled there could not be loaded."""
    found = the_one(mount("mode=700,noexec"))
    assert (found.kind, found.severity) == ("noexec", "disease")
    assert "mounted noexec" in found.what
    assert "can be run from" in found.cure


def test_read_only(mount: Mount) -> None:
    """The kernel's reason is told."""
    found = the_one(mount("mode=700,ro"))
    assert (found.kind, found.severity) == ("not writable", "disease")
    assert found.what == "nothing can be kept here: Read-only file system"
    assert found.cure.startswith("mount it writable, or choose another directory")


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC])
def test_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The disk has room, and this user may not write a byte more: no permission helps."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    found = the_one(tmp_path)
    assert (found.kind, found.severity) == ("space", "disease")
    assert found.what == f"nothing can be written here: {os.strerror(number)}"
    assert found.cure.startswith("free space")
    assert "quota" in found.cure


def test_below_a_file(tmp_path: Path) -> None:
    """A variable with a mistake in it."""
    (tmp_path / "file").touch()
    assert the_one(tmp_path / "file" / "cache").kind == "not writable"


def test_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's table of mounts says NFS."""
    table = f"1 1 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path} rw - nfs4 filer:/x rw"
    monkeypatch.setattr(mounts, "_mountinfo", lambda: table)
    found = the_one(tmp_path / "cache")
    assert (found.kind, found.severity) == ("network file system", "disease")
    assert found.what == "it is nfs4: compilers that share it race and lose files"
    assert found.cure == "choose a directory on a local disk (TCCACHE_HOME)"
    assert Directory(tmp_path, "x").facts["file_system"] == "nfs4"


def test_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes there runs code here; said is who can, and what to do, unless it is meant."""
    tmp_path.chmod(0o777)
    found = the_one(tmp_path)
    assert (found.kind, found.severity) == ("open to others", "disease")
    assert found.what.endswith(f"{tmp_path}: every user of this machine can write to it")
    assert found.cure.startswith(f"chmod go-w {tmp_path}, or set TCCACHE_SHARED=1 if everyone")
    monkeypatch.setenv("TCCACHE_SHARED", "1")
    assert Directory(tmp_path, "TCCACHE_HOME").findings == ()


def test_a_sticky_directory_protects_what_lies_below(tmp_path: Path) -> None:
    """As /tmp does where a directory below it is used; not where files would lie in it."""
    tmp_path.chmod(0o1777)
    assert Directory(tmp_path, "TCCACHE_HOME", holds_others=True).findings == ()
    assert the_one(tmp_path).kind == "open to others"


def test_another_owner(open_folder: Path, unprivileged: Callable[..., Any]) -> None:
    """Who owns a directory decides what lies in it."""
    if os.getuid():
        pytest.skip("only root makes a directory that is another user's")
    os.chown(open_folder, 54321, 54321)
    open_folder.chmod(0o755)
    found = unprivileged(
        """
        from cachesvc.local.health import Directory
        found = Directory(Path(sys.argv[1]), "TCCACHE_HOME").findings
        show([[item.kind, item.severity, item.what] for item in found if item.kind != "space"])
        """,
        open_folder,
    )
    assert [item[:2] for item in found] == [
        ["not writable", "disease"],
        ["open to others", "disease"],
    ]
    assert found[1][2].endswith(f"{open_folder}: it belongs to another user (UID 54321)")


def test_where_it_is_not_needed(mount: Mount) -> None:
    """The temporary directory may be noexec: the live directory lies elsewhere."""
    (found,) = Directory(mount("mode=700,noexec"), "the temporary directory", needed=False).findings
    assert (found.kind, found.severity) == ("noexec", "hint")
    assert found.where.startswith("the temporary directory /")


def test_facts(mount: Mount) -> None:
    """What was looked at, for programs."""
    folder = mount("mode=700,size=1m,nr_inodes=100")
    facts = Directory(folder, "TCCACHE_HOME").facts
    assert (facts["path"], facts["chosen_by"]) == (str(folder), "TCCACHE_HOME")
    assert facts["free_bytes"] == 1024 * 1024
    assert facts["free_inodes"] == 99
