"""Real models under users and homes as containers have them: they start warm, and the report says
where."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cachesvc.local.live import INDUCTOR, TRITON

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")

Run = Callable[..., Any]

# A user without an entry in passwd. Of root's rights it keeps the one to read everything, and so do
# its children: the interpreter of a test may lie in a folder that is closed to others.
BECOME_NOBODY = """
import ctypes, struct

def become_nobody():
    if os.geteuid() == 0:
        keep_caps, ambient, raise_it, read_search = 8, 47, 2, 2
        libc = ctypes.CDLL(None)
        os.setgroups([])
        os.setgid(54321)
        libc.prctl(keep_caps, 1, 0, 0, 0)
        os.setuid(54321)
        kept = 1 << read_search
        libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[kept] * 3, 0, 0, 0))
        libc.prctl(ambient, raise_it, read_search, 0, 0)
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        os.environ.pop(name, None)

become_nobody()
"""

# Not compiled before the start: `torch.compile` makes the directory that the variable names, and
# raises where it cannot.
WARM = """
model = Fused()
report = start(model, [ones()], trust="store")
with torch.no_grad():
    right = torch.allclose(torch.compile(model)(ones()), model(ones()))
folders = [os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
result = [shown(report), folders, right]
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="tccache-test-", dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.fixture
def warm(starts: Starts, fused: Published, open_folder: Path) -> Run:
    """A function that starts a model for which g++ has run, with these variables and nothing else
    that says where things lie; and proves that it was warm and right. It gives the report."""

    def run(env: Mapping[str, Path | str | None], before: str = "", **given: object) -> Any:
        home = dict.fromkeys(("TCCACHE_HOME", "XDG_CACHE_HOME", "HOME", INDUCTOR, TRITON))
        report, folders, right = starts.run(
            before + WARM,
            store=fused.store,
            label="fused",
            env={**home, "TMPDIR": str(open_folder), **_texts(env)},
            given=given,
        )
        assert report["verdict"] == "warm", report
        assert report["counts"]["native_builds"] == 0
        assert right
        assert not any("internal error" in note for note in report["notes"])
        return {**report, "folders": folders}

    return run


def _texts(env: Mapping[str, Path | str | None]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in env.items()}


@pytest.mark.parametrize("home", [None, "", "/", "closed", "gone"])
def test_a_user_who_is_nobody(warm: Run, open_folder: Path, home: str | None) -> None:
    """A random UID, no USER, and a HOME that is unset, empty, the root, another user's, or not
    there: the live directory is a private one in the temporary directory."""
    if os.getuid() == 0:
        (open_folder / "closed").mkdir(mode=0o555)
    value = str(open_folder / home) if home == "closed" else home
    value = "/nonexistent/home" if home == "gone" else value
    report = warm({"HOME": value}, BECOME_NOBODY)
    if os.getuid() == 0:
        assert Path(report["live"]).is_relative_to(open_folder / "tccache-54321")
        passed_over = [note for note in report["notes"] if "was passed over" in note]
        assert len(passed_over) == bool(home)
        assert all(note.endswith("Permission denied") for note in passed_over)


def test_torch_compile_before_the_start(
    starts: Starts, fused: Published, open_folder: Path
) -> None:
    """`torch.compile` of a user without a name comes to a directory that the number names; the
    start, with a model that was not compiled yet as with one that was, goes to ours."""
    reports = starts.run(
        BECOME_NOBODY
        + """
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
first = start(Fused(), [ones()], trust="store")
torch._dynamo.reset()
second = start(torch.compile(Fused()), [ones()], trust="store")
result = [shown(first), shown(second), default_cache_dir()]
""",
        store=fused.store,
        label="fused",
        env={"HOME": None, "TCCACHE_HOME": None, "TMPDIR": str(open_folder)},
    )
    *reports, default = reports
    assert [report["verdict"] for report in reports] == ["warm", "warm"]
    if os.getuid() == 0:
        assert default == f"{open_folder}/torchinductor_uid_54321"
        lives = [Path(report["live"]) for report in reports]
        assert all(live.is_relative_to(open_folder / "tccache-54321") for live in lives)


def test_directories_of_somebody_else(warm: Run, open_folder: Path) -> None:
    """An image that sets every variable to a place that this user may only read: each is named,
    and the compiler is led elsewhere."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o555)
    env = {"TCCACHE_HOME": closed, INDUCTOR: closed / "inductor", TRITON: closed / "triton"}
    report = warm(env, BECOME_NOBODY)
    if os.getuid() == 0 or not os.access(closed, os.W_OK):
        assert not any(Path(folder).is_relative_to(closed) for folder in report["folders"])
        for name in (INDUCTOR, TRITON, closed):
            assert any(str(name) in note for note in report["notes"])


def test_a_volume_that_is_open_to_all(warm: Run, tmp_path: Path) -> None:
    """As a pod has it: passed over, with what to do; used without a word where that is meant."""
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    env = {"TCCACHE_HOME": volume, "HOME": tmp_path / "home"}
    report = warm(env)
    assert Path(report["live"]).is_relative_to(tmp_path / "home")
    (note,) = report["notes"]
    assert f"{volume}: every user of this machine can write to it" in note
    assert "TCCACHE_SHARED=1" in note
    assert list(volume.iterdir()) == []
    report = warm({**env, "TCCACHE_SHARED": "1"})
    assert Path(report["live"]).is_relative_to(volume)
    assert report["notes"] == []


@contextmanager
def mounted(point: Path, options: str) -> Iterator[None]:
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size=4m,{options}", "tmpfs", str(point)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", str(point)], check=True)


@pytest.mark.parametrize("variable", ["TCCACHE_HOME", INDUCTOR])
@pytest.mark.parametrize(
    ("options", "reason"), [("ro", "Read-only file system"), ("noexec", "mounted noexec")]
)
def test_a_mount_that_cannot_be_used(
    warm: Run, tmp_path: Path, variable: str, options: str, reason: str
) -> None:
    """A read-only volume, and a tmpfs from which no library can be loaded, as the user's directory
    and as ours: passed over with the reason, and nothing is left there."""
    disk = tmp_path / "disk"
    with mounted(disk, options):
        report = warm({variable: disk / "cache", "HOME": tmp_path / "home"})
        assert list(disk.iterdir()) == []
    assert Path(report["live"]).is_relative_to(tmp_path / "home")
    (note,) = report["notes"]
    assert reason in note
    assert str(disk / "cache") in note


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/cache"])
def test_a_path_that_is_no_directory(warm: Run, tmp_path: Path, path: str) -> None:
    """A variable with a mistake in it: torch alone would fail at the first compile."""
    (tmp_path / "file").write_text("")
    report = warm({INDUCTOR: tmp_path / path, "HOME": tmp_path / "home"})
    assert Path(report["live"]).is_relative_to(tmp_path / "home")
    assert report["notes"][0].startswith(f"{INDUCTOR}={tmp_path / path} was passed over: ")


ON_NETWORK = """
from cachesvc.local import mounts
table = "1 1 0:1 / / rw - ext4 x rw\\n2 1 0:2 / {} rw - nfs4 x rw".format(given["network"])
mounts._mountinfo = lambda: table
"""


def test_a_network_file_system_that_was_asked_for(warm: Run, tmp_path: Path) -> None:
    """The user's word counts: it is used, and the report says what happens there."""
    network = tmp_path / "network"
    report = warm({INDUCTOR: network / "cache"}, ON_NETWORK, network=network)
    assert report["live"] == str(network / "cache")
    (note,) = report["notes"]
    assert "is on a network file system (nfs4)" in note


def test_a_home_on_a_network_file_system(warm: Run, tmp_path: Path, open_folder: Path) -> None:
    """Nobody asked for it: a local disk is seeded, and the report says so."""
    network = tmp_path / "network"
    report = warm({"HOME": network / "home"}, ON_NETWORK, network=network)
    assert Path(report["live"]).is_relative_to(open_folder)
    assert not network.exists()
    (note,) = report["notes"]
    assert "was passed over as live directory: it is on a network file system (nfs4)" in note
