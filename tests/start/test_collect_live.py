"""Live directories that nobody uses are removed, whole, and no other; beside processes at work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc.core.errors import UsageError
from cachesvc.core.temporary import make_folder, remove_folder
from cachesvc.local import own_live
from cachesvc.local.in_use import file_of
from cachesvc.local.live import INDUCTOR, live_directory
from cachesvc.local.places import Places
from cachesvc.local.seed import Seeder
from cachesvc.start import collect_live as collect_module
from cachesvc.start.collect_live import CollectedLive, collect_live

LONG_AGO = 1_000_000_000
DAYS = 86_400.0
OTHER = 12345
NAMES = ("0123456789abcdef", "1123456789abcdef", "2123456789abcdef")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All places where a live directory may lie are this test's own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("XDG_CACHE_HOME", INDUCTOR, "TRITON_CACHE_DIR", "TCCACHE_SHARED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "tccache"))
    return tmp_path / "tccache"


def made(number: int = 0, size: int = 1000, *, used: int | None = LONG_AGO) -> Places:
    """A live directory of an environment with a file of this size, used at that time, or now."""
    places = live_directory(NAMES[number] * 4, os.environ).places
    (places.root / "inductor" / "ab").mkdir(parents=True)
    (places.root / "inductor" / "ab" / "kernel.so").write_bytes(bytes(size))
    file_of(places).touch()
    for file in (file_of(places), places.root / "inductor" / "ab" / "kernel.so"):
        if used is not None:
            os.utime(file, (used, used))
    return places


def paths(items: tuple[cachesvc.CollectedItem, ...]) -> list[str]:
    return [item.path for item in items]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a script, and waits until it says that it is ready."""
    processes = []

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": tempfile.gettempdir()},
        )
        processes.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


# Which go.


def test_what_was_not_used_for_long_is_removed(home: Path) -> None:
    """Whole, with its bytes, its time and the reason; what was used lately stays."""
    old, new = made(0), made(1, used=None)
    found = collect_live(older_than_s=30 * DAYS)
    (item,) = found.removed
    assert (item.path, item.last_used) == (str(old.root), "2001-09-09T01:46:40.000000Z")
    assert item.bytes >= 1000
    assert item.reason.startswith("unused for ")
    assert paths(found.kept) == [str(new.root)]
    assert found.ok
    assert found.bytes == item.bytes
    assert os.listdir(home / "live") == [NAMES[1]]


def test_a_dry_run_says_the_same_and_does_nothing() -> None:
    """The same items, and all is there afterwards."""
    places = made(0), made(1, used=None)
    said = collect_live(older_than_s=DAYS, dry_run=True)
    assert all(item.root.is_dir() for item in places)
    assert said.dry_run
    done = collect_live(older_than_s=DAYS)
    assert [item.path for item in said.removed] == [item.path for item in done.removed]
    assert paths(said.kept) == paths(done.kept)


def test_the_oldest_go_until_the_rest_is_small_enough() -> None:
    """Of three with a megabyte each, two fit."""
    kept = [made(number, 1_000_000, used=LONG_AGO + 1 - number).root for number in range(3)]
    found = collect_live(keep_bytes=2_100_000)
    assert paths(found.removed) == [str(kept[2])]
    assert "2.1 MB may stay" in found.removed[0].reason
    assert [root.exists() for root in kept] == [True, True, False]
    assert collect_live(keep_bytes=2_100_000).removed == ()
    assert len(collect_live(keep_bytes=0).removed) == 2


def test_without_a_limit_none_goes() -> None:
    """What killed processes have left is all that is removed."""
    made(0)
    assert collect_live() == CollectedLive(kept=collect_live().kept)


def test_one_that_was_seeded_lately_was_used() -> None:
    """A pull brings units before any process takes hold of the directory."""
    places = made(0)
    (places.records / "ledger.json").touch()
    assert collect_live(older_than_s=DAYS).removed == ()


def test_one_that_was_compiled_into_lately_was_used() -> None:
    """By a program without this library, which leaves no record."""
    places = made(0)
    (places.root / "inductor" / "ab" / "kernel.so").touch()
    assert collect_live(older_than_s=DAYS).removed == ()


@pytest.mark.parametrize("limit", [{"older_than_s": -1.0}, {"keep_bytes": -1}])
def test_a_limit_below_zero_is_none(limit: dict[str, int]) -> None:
    """Nor is what is no number: nothing is removed by mistake."""
    with pytest.raises(UsageError, match="give a number from 0 on"):
        collect_live(**limit)  # type: ignore[arg-type] - a table of both
    with pytest.raises(UsageError):
        collect_live(older_than_s=float("nan"))


def test_every_home_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that had other variables has live directories in other places."""
    roots = []
    for name in ("TCCACHE_HOME", "XDG_CACHE_HOME", "HOME", ""):
        with monkeypatch.context() as patch:
            for other in ("TCCACHE_HOME", "XDG_CACHE_HOME", "HOME"):
                patch.delenv(other, raising=False)
            if name:
                patch.setenv(name, str(tmp_path / "tccache" if "TCC" in name else tmp_path / name))
            roots.append(str(made(0).root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "XDG_CACHE_HOME"))
    monkeypatch.setenv("HOME", str(tmp_path / "HOME"))
    assert len(set(roots)) == 4
    assert sorted(paths(collect_live(older_than_s=DAYS).removed)) == sorted(roots)


def test_one_that_was_filled_under_keys_goes_too(home: Path) -> None:
    """Its name has a second part, for whom to trust."""
    places = made(0)
    places.root.rename(places.root.with_name(f"{NAMES[0]}-{NAMES[1]}"))
    assert len(collect_live(older_than_s=DAYS).removed) == 1
    assert os.listdir(home / "live") == []


# Which stay.


def test_a_directory_that_the_user_set_stays(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it lies, among ours too, though our records are in it."""
    mine = tmp_path / "mine"
    monkeypatch.setenv(INDUCTOR, str(mine))
    with Seeder(live_directory(NAMES[0] * 4, os.environ).places):
        pass
    assert (mine / ".tccache").is_dir()
    monkeypatch.delenv(INDUCTOR)
    places = made(0)
    monkeypatch.setenv(INDUCTOR, str(places.root / "inductor"))
    found = collect_live(older_than_s=0, keep_bytes=0)
    assert (found.removed, found.kept) == ((), ())
    assert mine.is_dir()
    assert places.root.is_dir()


def test_what_is_not_of_our_making_stays(home: Path, tmp_path: Path) -> None:
    """Another name, no records, a link, a file: none is a live directory."""
    elsewhere = made(0).root.rename(tmp_path / "elsewhere")
    (home / "live" / NAMES[0]).symlink_to(elsewhere)
    (home / "live" / NAMES[1]).mkdir()
    (home / "live" / NAMES[2]).touch()
    for name in ("data", f"{NAMES[2]}-data", f"{NAMES[2]}-{NAMES[1]}-{NAMES[0]}"):
        (home / "live" / name / ".tccache").mkdir(parents=True)
    found = collect_live(older_than_s=0, keep_bytes=0)
    assert found == CollectedLive()
    assert len(os.listdir(home / "live")) == 6
    assert (elsewhere / "inductor" / "ab" / "kernel.so").exists()


@as_root
def test_one_of_another_user_stays(home: Path) -> None:
    """In a directory that is shared on purpose, everybody collects their own."""
    places = made(0)
    os.chown(places.root, OTHER, OTHER)
    assert collect_live(older_than_s=0).removed == ()
    assert places.root.is_dir()


def test_where_others_can_put_files_nothing_is_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by name, since what the name leads to may be exchanged; unless it is meant so."""
    places = made(0)
    (home / "live").chmod(0o777)
    found = collect_live(older_than_s=DAYS)
    assert found.removed == ()
    assert "was left alone: others can put files there" in found.notes[0]
    assert places.root.is_dir()
    monkeypatch.setenv("TCCACHE_SHARED", "1")
    assert len(collect_live(older_than_s=DAYS).removed) == 1


HOLDER = """
import os, sys
from cachesvc.local.in_use import hold
from cachesvc.local.live import live_directory
from cachesvc.local.seed import Seeder
places = live_directory(sys.argv[1] * 4, os.environ).places
if sys.argv[2] == "hold":
    hold(places)
else:
    seeder = Seeder(places)
    seeder.__enter__()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(("how", "dry_run"), [("hold", True), ("hold", False), ("seed", False)])
def test_one_that_a_process_uses_stays(start: Start, how: str, dry_run: bool) -> None:
    """However long ago it says that it was used, until the process has ended; one that is
    being seeded, too."""
    places = made(0)
    process = start(HOLDER, NAMES[0], how)
    for path in (file_of(places), *places.records.iterdir()):
        os.utime(path, (LONG_AGO, LONG_AGO))
    found = collect_live(older_than_s=DAYS, keep_bytes=0, dry_run=dry_run)
    (item,) = found.kept
    assert (found.removed, item.reason) == ((), "a process uses it")
    assert (places.root / "inductor" / "ab" / "kernel.so").exists()
    process.kill()
    process.wait()
    assert len(collect_live(older_than_s=DAYS, dry_run=dry_run).removed) == 1


RUNNER = """
import sys
import cachesvc
print("ready", flush=True)
cachesvc.run("anything", [sys.executable, "-c", sys.argv[1]], store=sys.argv[2], publish=False)
"""
PROGRAM = """
import os, signal
os.environ.pop("TRITON_CACHE_DIR")
inductor = os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
runner = os.getppid()
os.kill(runner, signal.SIGKILL)
while os.getppid() == runner:
    os.sched_yield()
from cachesvc.local import own_live
from cachesvc.start.collect_live import collect_live
own_live.is_known_to_a_program = lambda folder: False  # the hold alone keeps it
found = collect_live(older_than_s=0)
kept = [item.reason for item in found.kept]
print(len(found.removed), kept, os.path.isdir(os.path.dirname(inductor)), flush=True)
"""


def test_a_program_that_was_run_holds_its_directory(start: Start, tmp_path: Path) -> None:
    """Also when what has run it is killed: the program uses the directory until its own end."""
    (tmp_path / "store").mkdir()
    process = start(RUNNER, PROGRAM, tmp_path / "store")
    assert process.stdout
    assert process.stdout.readline() == "0 ['a process uses it'] True\n"
    process.stdout.read()
    assert len(collect_live(older_than_s=0).removed) == 1


TOLD = "print('ready', flush=True); input()"
MAPPED = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
os.close(file)
print("ready", flush=True)
input()
"""


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("how", [INDUCTOR, "TRITON_CACHE_DIR", "relative", "mapped"])
def test_one_that_a_plain_program_uses_stays(
    start: Start, monkeypatch: pytest.MonkeyPatch, how: str, dry_run: bool
) -> None:
    """It was started with a variable that leads there, or has a library open: until its end."""
    old, other = made(0), made(1)
    file = old.root / "inductor" / "ab" / "kernel.so"
    with monkeypatch.context() as patch:
        if how == "relative":
            patch.chdir(old.root.parent)
            patch.setenv(INDUCTOR, f"{old.root.name}/inductor")
        elif how != "mapped":
            patch.setenv(how, str(old.root / how))
        process = start(MAPPED if how == "mapped" else TOLD, file)
    found = collect_live(older_than_s=DAYS, dry_run=dry_run)
    assert paths(found.removed) == [str(other.root)]
    (item,) = found.kept
    assert (item.path, item.reason) == (str(old.root), "a process uses it")
    assert file.exists()
    process.kill()
    process.wait()
    assert str(old.root) in paths(collect_live(older_than_s=DAYS, dry_run=dry_run).removed)


# What killed processes have left.


def test_what_killed_processes_have_left_is_removed(home: Path, start: Start) -> None:
    """In a directory that stays: folders and files of ours that nobody holds, and of compilers,
    after a day; with its bytes and a reason. What is at work stays."""
    places = made(0, used=None)
    at_work = make_folder("stage", places.root / "inductor")
    folder = places.root / "triton" / "KEY"
    (folder / "tmp.pid_12_34").mkdir(parents=True)
    (folder / "tmp.pid_12_34" / "kernel.cubin").write_bytes(bytes(100))
    (folder / "tmp.pid_56_78").mkdir()
    left = [
        places.root / "inductor" / "x.tccache-scratch",
        places.records / ".0123.tccache-scratch",
        places.root / "inductor" / "ab" / ".123.456.tmp",
        places.root / "inductor" / ".tccache-stage-01234567-abcd",
    ]
    for path in left:
        path.write_bytes(bytes(10))
    for path in (*left, folder / "tmp.pid_12_34"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    try:
        said = collect_live(dry_run=True)
        found = collect_live()
    finally:
        assert os.path.isdir(at_work)
        remove_folder(at_work)
    assert paths(said.leftovers) == paths(found.leftovers)
    assert sorted(paths(found.leftovers)) == sorted(map(str, [*left, folder / "tmp.pid_12_34"]))
    assert found.bytes == 140
    assert all("left it" in item.reason for item in found.leftovers)
    assert os.listdir(folder) == ["tmp.pid_56_78"]
    assert (places.root / "inductor" / "ab" / "kernel.so").exists()
    assert collect_live().leftovers == ()


def test_a_unit_that_was_set_aside_long_ago(home: Path) -> None:
    """Its files go; what is known of it stays."""
    places = made(0, used=None)
    kept = places.records / "quarantine"
    for name in ("old", "new"):
        (kept / name).mkdir(parents=True)
        (kept / name / "file").write_bytes(bytes(10))
    os.utime(kept / "old", (LONG_AGO, LONG_AGO))
    (places.records / "quarantine.json").write_text("{}")
    assert collect_live().leftovers == ()
    (item,) = collect_live(older_than_s=DAYS).leftovers
    assert (item.path, item.bytes) == (str(kept / "old"), 10)
    assert os.listdir(kept) == ["new"]
    assert (places.records / "quarantine.json").exists()


KILLED = """
import os, signal
from cachesvc.local import own_live
from cachesvc.start.collect_live import collect_live
own_live.remove_all = lambda path: os.kill(os.getpid(), signal.SIGKILL)
print("ready", flush=True)
collect_live(older_than_s=60)
"""


def test_a_collector_that_was_killed(home: Path, start: Start) -> None:
    """It had renamed the directory: no start finds it, the next collector removes it, and no lock
    is left that anybody waits for."""
    places = made(0)
    assert start(KILLED).wait() == -9
    (gone,) = (home / "live").iterdir()
    assert gone.name.startswith(".gone-")
    again = made(0, used=None)
    assert again == places
    with Seeder(again, patience_s=0):
        pass
    found = collect_live()
    assert paths(found.leftovers) == [str(gone)]
    assert found.leftovers[0].bytes >= 1000
    assert os.listdir(home / "live") == [NAMES[0]]


def test_what_cannot_be_removed_is_told(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """The others are removed all the same."""
    places = [made(0), made(1)]
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if source == places[0].root:
            raise PermissionError(13, "Permission denied", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    found = collect_live(older_than_s=DAYS)
    assert not found.ok
    assert found.failed[0].startswith(f"{places[0].root} cannot be removed: ")
    assert paths(found.removed) == [str(places[1].root)]


def test_another_collector_was_quicker(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """At whatever moment it removes the directory: that is no failure, and nothing is made."""
    for name in ("_measured", "remove_live"):
        places = made(0)
        module = own_live if name == "_measured" else collect_module
        original = getattr(module, name)

        def late(
            argument: object, root: Path = places.root, original: Callable[..., Any] = original
        ) -> Any:
            shutil.rmtree(root)
            return original(argument)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, late)
            found = collect_live(older_than_s=DAYS)
        assert (found.ok, found.removed) == (True, ())
        assert os.listdir(home / "live") == []


# Beside starts.

STARTER = """
import io, os, sys
from cachesvc.core.digest import digest_bytes
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.in_use import hold
from cachesvc.local.live import live_directory
from cachesvc.local.seed import Seeder

entry = Entry("inductor/ab/kernel.py", 4, digest_bytes(b"code"))
unit = Unit("inductor/ab/kernel", (entry,), Origin("2026-01-01T00:00:00.000000Z", "any"))

def start():
    live = live_directory(sys.argv[1] * 4, os.environ)
    assert live.notes == (), live.notes
    hold(live.places)
    with Seeder(live.places) as seeder:
        plan = seeder.plan([unit])
        for missing in plan.missing:
            seeder.stage(entry, io.BytesIO(b"code"))
        seeder.commit(plan.missing, plan.in_place)
    for _ in range(5):
        assert live.places.locate(entry.path).read_bytes() == b"code"
        os.sched_yield()

print("ready", flush=True)
for number in range(int(sys.argv[2])):
    if not (child := os.fork()):
        try:
            start()
        except BaseException as error:
            print("lost", number, type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print("done", flush=True)
"""

COLLECTOR = """
import sys
from cachesvc.start.collect_live import collect_live
print("ready", flush=True)
while not sys.argv[1:]:
    found = collect_live(older_than_s=0)
    for item in (*found.removed, *found.failed):
        print(item in found.failed and item or "removed", flush=True)
"""


@pytest.mark.parametrize("rounds", [15, pytest.param(250, marks=pytest.mark.slow)])
def test_starts_and_collectors_race(start: Start, home: Path, rounds: int) -> None:
    """Two processes start 15 times each, or 250 times, seed and read, while two others remove what
    they may: what a start has brought stays until it has ended, and none is led elsewhere."""
    starters = [start(STARTER, NAMES[0], rounds) for _ in range(2)]
    collector = start(COLLECTOR)
    removed = 0
    while any(process.poll() is None for process in starters):
        found = collect_live(older_than_s=0)
        assert found.ok, found.failed
        removed += len(found.removed)
    collector.kill()
    for process in starters:
        assert process.stdout
        assert process.stdout.read() == "done\n"
    assert collector.stdout
    lines = collector.stdout.read().splitlines()
    assert set(lines) <= {"removed"}
    assert removed + len(lines) > rounds / 20
