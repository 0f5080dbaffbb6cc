"""Real file systems that fill up or cannot be written, and a process that may open few files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cachesvc
from cachesvc.core.temporary import MARK
from cachesvc.local import in_use
from cachesvc.runtime import directories
from cachesvc.start.attempt import Attempt
from tccache.main import run

Mount = Callable[..., Path]

PAGE = 4096
FILES = 12
NAME = "gpt"


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever tests before these have compiled in this process does not settle its directories."""
    monkeypatch.setattr(directories, "_are_settled", lambda: False)


@pytest.fixture
def goods(tmp_path: Path) -> Path:
    """An Inductor directory of files that no pack makes smaller."""
    folder = tmp_path / "goods"
    for number in range(FILES):
        file = folder / f"fxgraph/x{number % 4}/f{number}/entry"
        file.parent.mkdir(parents=True)
        file.write_bytes(os.urandom(2 * PAGE))
    return folder


@pytest.fixture
def filled(tmp_path: Path, goods: Path) -> Path:
    """A store that holds them."""
    cachesvc.push(NAME, store=tmp_path / "filled", inductor_dir=goods)
    return tmp_path / "filled"


@pytest.fixture(autouse=True)
def _lets_go(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A start holds its live directory until the process ends; a disk that is held stays."""
    held: dict[str, int] = {}
    monkeypatch.setattr(in_use, "_held", held)
    yield
    for number in held.values():
        os.close(number)


def sets_home(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("TCCACHE_HOME", str(home))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)


def entries(folder: Path) -> dict[str, bytes]:
    """The files that a compiler would find, by the end of their path."""
    found = (path for path in folder.rglob("entry") if ".tccache" not in str(path))
    return {"/".join(path.parts[-4:]): path.read_bytes() for path in found}


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if MARK in path.name or ".tmp" in path.name]


def fill(disk: Path, pages: int) -> Path:
    """Fills a disk so that this many pages are left."""
    ballast = disk / "ballast"
    status = os.statvfs(disk)
    ballast.write_bytes(bytes(max(0, status.f_bavail - pages) * PAGE))
    return ballast


def start() -> Attempt:
    """What a start does before the first call; it raises nothing."""
    attempt = Attempt(NAME)
    attempt.prepare(os.environ["TCCACHE_STORE"], None)
    assert not any("internal error" in note for note in attempt.notes)
    return attempt


def pushes(store: Path, goods: Path) -> str:
    """What a push says that fails; nothing if it does not."""
    try:
        cachesvc.push(NAME, store=store, inductor_dir=goods)
    except cachesvc.StoreError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("looks", [True, False])
def test_a_live_directory_on_a_disk_that_is_full(
    mount: Mount, filled: Path, goods: Path, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """At every page that is left: a start goes on with a note, what is seen is whole, nothing
    half-written stays; with room again all is brought. Also where the room goes between the look
    and the writing."""
    disk = mount("size=2m")
    monkeypatch.setenv("TCCACHE_STORE", str(filled))
    if not looks:
        monkeypatch.setattr("cachesvc.local.seed.check_space", lambda sizes: None)
    brought = 0
    for pages in range(0, 3 * FILES + 8, 2):
        home = disk / f"home{pages}"
        home.mkdir()
        sets_home(monkeypatch, home)
        ballast = fill(disk, pages)
        attempt = start()
        if attempt.brought.is_usable:
            brought += 1
        else:
            assert attempt.notes
            assert temporaries(home) == []
        seen = entries(home)
        assert all(seen[path] == data for path, data in entries(goods).items() if path in seen)
        ballast.unlink()
        assert start().brought.is_usable
        assert entries(home) == entries(goods)
        assert temporaries(home) == []
        subprocess.run(["rm", "-rf", str(home)], check=True)
    assert 0 < brought < 3 * FILES // 2


def test_a_store_on_a_disk_that_is_full(mount: Mount, filled: Path, goods: Path) -> None:
    """At every page that is left: all of a push is in the store or none of it."""
    disk = mount("size=1m")
    pushed = 0
    for pages in range(0, 3 * FILES, 2):
        store = disk / f"store{pages}"
        ballast = fill(disk, pages)
        told = pushes(store, goods)
        assert told == "" or "No space left on device; free some space there" in told
        assert sum(item.segments for item in cachesvc.list_bundles(store=store)) == (not told)
        pushed += not told
        assert temporaries(disk) == []
        ballast.unlink()
        cachesvc.push(NAME, store=store, inductor_dir=goods)
        assert cachesvc.verify(store=store).ok
        subprocess.run(["rm", "-rf", str(store)], check=True)
    assert pushed


def test_a_live_directory_without_inodes(
    mount: Mount, filled: Path, goods: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for pages, with room for that many files more."""
    disk = mount("size=4m,nr_inodes=200")
    monkeypatch.setenv("TCCACHE_STORE", str(filled))
    brought = 0
    for number in range(1, 60, 4):
        home = disk / f"home{number}"
        home.mkdir()
        sets_home(monkeypatch, home)
        taken = disk / "taken"
        taken.mkdir()
        for name in range(os.statvfs(disk).f_favail - number):
            (taken / str(name)).touch()
        attempt = start()
        brought += attempt.brought.is_usable
        seen = entries(home)
        assert all(seen[path] == data for path, data in entries(goods).items() if path in seen)
        assert attempt.brought.is_usable or temporaries(home) == []
        subprocess.run(["rm", "-rf", str(taken)], check=True)
        assert start().brought.is_usable
        assert entries(home) == entries(goods)
        subprocess.run(["rm", "-rf", str(home)], check=True)
    assert 0 < brought < 15


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """A function that shows a folder somewhere else, where nothing can be written to it."""
    mounted: list[Path] = []

    def bind(folder: Path) -> Path:
        place = tmp_path / f"{folder.name}-bound"
        place.mkdir()
        for options in (["--bind"], ["-o", "remount,bind,ro"]):
            command = ["mount", *options, str(folder), str(place)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("this user may not mount a file system")
            if place not in mounted:
                mounted.append(place)
        return place

    yield bind
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


def test_a_read_only_mount(
    bound: Callable[[Path], Path],
    filled: Path,
    goods: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A store in an image serves starts and is not written; a home in an image is passed over.

    The command ends with the exit code of what was in the way.
    """
    store = bound(filled)
    monkeypatch.setenv("TCCACHE_STORE", str(store))
    sets_home(monkeypatch, filled.parent / "home")
    assert start().brought.is_usable
    (goods / "fxgraph/new").mkdir()
    (goods / "fxgraph/new/entry").write_bytes(b"new")
    with pytest.raises(cachesvc.StoreError, match="Read-only file system; mount it writable"):
        cachesvc.push(NAME, store=store, inductor_dir=goods)
    folders = ["--store", str(store), "--inductor-dir"]
    assert run(["push", NAME, *folders, str(goods)]) == cachesvc.StoreError.exit_code == 5
    assert cachesvc.verify(store=store).ok
    home = bound(filled.parent / "home")
    sets_home(monkeypatch, home)
    attempt = start()
    assert attempt.live is not None
    assert not attempt.live.root.is_relative_to(home)
    assert any(str(home) in note and "Read-only" in note for note in attempt.notes)
    with pytest.raises(cachesvc.TccacheError, match="Read-only file system: mount it writable"):
        cachesvc.pull(NAME, store=store, inductor_dir=home / "inductor")
    assert run(["pull", NAME, *folders, str(home / "inductor")]) == 1
    assert "Read-only file system" in capsys.readouterr().err


FEW_FILES = """
import json, os, resource, signal, sys, traceback
import cachesvc
import cachesvc.start.attempt, cachesvc.start.transfer, cachesvc.start.push

store, goods, homes = sys.argv[1:]

def start():
    attempt = cachesvc.start.attempt.Attempt("gpt")
    attempt.prepare(store, None)
    assert not any("internal error" in note for note in attempt.notes), attempt.notes
    return attempt.brought.is_usable

def push():
    try:
        cachesvc.push("gpt", store=os.path.join(homes, "new"), inductor_dir=goods)
    except cachesvc.TccacheError as error:
        assert "Too many open files" in str(error), error
        return False
    return True

os.environ["TCCACHE_HOME"] = os.path.join(homes, "first")
assert start()  # so that all is imported
found = {"start": [], "push": []}
used = len(os.listdir("/proc/self/fd"))
for name, verb in (("start", start), ("push", push)):
    for more in range(0, 30, 5):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os.environ["TCCACHE_HOME"] = os.path.join(homes, f"home{more}")
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, hard))
            try:
                os._exit(0 if verb() else 7)
            except BaseException:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                traceback.print_exc()
                os._exit(1)
        found[name].append(os.waitpid(child, 0)[1] >> 8)
    os.system(f"rm -rf {homes}/new")
print(json.dumps(found))
"""


def test_few_files_may_be_open(filled: Path, goods: Path, tmp_path: Path) -> None:
    """Under a real limit, from none more to thirty: a note or one sentence; with a few more than a
    thread needs a start brings all, though there are more files than that to be flushed."""
    command = [sys.executable, "-c", FEW_FILES, str(filled), str(goods), str(tmp_path / "homes")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["start"]) == {0, 7}, done.stderr
    assert set(found["push"]) == {0, 7}, done.stderr
    assert found["start"][-4:] == [0] * 4
    homes = (tmp_path / "homes").glob("home*")
    assert {len(entries(home)) for home in homes} <= {0, FILES}
    assert temporaries(tmp_path / "homes") == []
