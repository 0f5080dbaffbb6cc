"""A live directory that a process holds: who holds it, for how long, and what a remover may do."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachesvc.local import in_use
from cachesvc.local.in_use import exclusively, file_of, hold, holding, is_in_use
from cachesvc.local.places import RECORDS, Places, under

Start = Callable[..., "subprocess.Popen[str]"]

HOLD = """
import os, sys
from pathlib import Path
from cachesvc.local.in_use import exclusively, hold, is_in_use
from cachesvc.local.places import under
places = under(Path(sys.argv[1]))
"""
UNTIL_TOLD = """
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = under(tmp_path / "live" / "0123456789abcdef")
    places.records.mkdir(parents=True)
    return places


@pytest.fixture(autouse=True)
def _not_held_by_this_process() -> Iterator[None]:
    """What a test takes hold of is let go after it."""
    yield
    for number in in_use._held.values():
        os.close(number)
    in_use._held.clear()


@pytest.fixture
def start(places: Places) -> Iterator[Start]:
    """A function that starts a script which has `places`, and waits until it says it is ready."""
    processes = []

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD + script, str(places.root), *map(str, arguments)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdin
        assert process.stdout
        process.stdin.close()
        process.stdout.close()


def may_be_removed(places: Places) -> bool:
    with exclusively(places) as is_alone:
        return is_alone


def test_a_process_holds_it_until_it_is_killed(places: Places, start: Start) -> None:
    """The kernel lets go for it: nothing is left that blocks anyone."""
    process = start("hold(places)" + UNTIL_TOLD)
    assert is_in_use(places)
    assert not may_be_removed(places)
    process.kill()
    process.wait()
    assert not is_in_use(places)
    assert may_be_removed(places)


def test_this_process_counts_too(places: Places) -> None:
    """Nobody removes a directory from under itself; holding it again changes nothing."""
    assert may_be_removed(places)
    before = len(in_use._held)  # what other tests of this process hold
    hold(places)
    hold(places)
    assert len(in_use._held) == before + 1
    assert is_in_use(places)
    assert not may_be_removed(places)


def test_a_fork_holds_it_on(places: Places, start: Start) -> None:
    """The parent has ended, and a worker that it forked goes on to use the directory."""
    process = start(
        """
hold(places)
if os.fork():
    os._exit(0)
os.close(1) if sys.stdin.readline() else None
os._exit(0)
""".replace("hold(places)\n", "hold(places)\nprint('ready', flush=True)\n", 1)
    )
    process.wait()
    assert is_in_use(places)
    assert process.stdin
    process.stdin.close()  # the fork ends
    assert process.stdout
    process.stdout.read()
    assert not is_in_use(places)


@pytest.mark.parametrize("inherited", [True, False])
def test_a_program_holds_it_on_if_it_is_to(places: Places, start: Start, inherited: bool) -> None:
    """What runs a program is killed, and the program lives; no other program inherits anything."""
    process = start(
        f"""
hold(places, inherited={inherited})
os.posix_spawn("/bin/sh", ["sh", "-c", "echo ready; read line"], os.environ)
sys.stdin.close()
import signal
signal.pause()
"""
    )
    process.kill()
    process.wait()
    assert is_in_use(places) is inherited
    assert process.stdin
    process.stdin.close()
    assert process.stdout
    process.stdout.read()
    assert not is_in_use(places)


def test_the_time_of_the_hold_is_kept(places: Places) -> None:
    """Each time, also when this process holds it already."""
    hold(places)
    for _ in range(2):
        os.utime(file_of(places), (1, 1))
        hold(places)
        assert os.stat(file_of(places)).st_mtime > 1


def test_one_that_was_removed_is_made_anew(places: Places, tmp_path: Path) -> None:
    """Before the hold, and while it was held, as by hand: for this user alone, and held."""
    places.root.rename(tmp_path / "gone")
    hold(places)
    assert stat.S_IMODE(os.stat(places.root).st_mode) == 0o700
    assert is_in_use(places)
    places.root.rename(tmp_path / "gone-too")
    hold(places)
    assert is_in_use(places)


def test_holding_it_anew_keeps_nothing_of_the_old(places: Places, tmp_path: Path) -> None:
    """However often it is removed by hand, this process has one file open for it."""
    hold(places)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        places.root.rename(tmp_path / f"gone{number}")
        hold(places)
    assert len(os.listdir("/proc/self/fd")) == before
    assert is_in_use(places)
    assert may_be_removed(under(tmp_path / "gone0"))


def test_a_hold_for_a_while_can_end_before(places: Places) -> None:
    """As often as it is said, and nobody else's file is closed by that."""
    with holding(places) as let_go:
        assert is_in_use(places)
        let_go()
        assert not is_in_use(places)
        with open(os.devnull) as other:
            let_go()
            assert other.fileno() in map(int, os.listdir("/proc/self/fd"))
    with holding(places):
        assert is_in_use(places)
    assert not is_in_use(places)


def test_one_that_is_being_removed_is_made_anew(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes while a remover has it waits for the rename, and never holds what is going."""
    with exclusively(places) as is_alone:
        assert is_alone
        waits = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                places.root.rename(tmp_path / "gone")

        monkeypatch.setattr("time.sleep", wait)
        hold(places)
    assert len(waits) == 3
    assert is_in_use(places)
    assert not (tmp_path / "gone" / RECORDS / "lock").exists()
    assert may_be_removed(under(tmp_path / "gone"))


def test_one_that_is_renamed_between_opening_and_locking(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock was had, of a file that is not there any more: it is taken again, of the new one."""
    flock = fcntl.flock
    renamed = []

    def late(number: int, kind: int) -> None:
        if not renamed:
            renamed.append(places.root.rename(tmp_path / "gone"))
        flock(number, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    hold(places)
    assert renamed
    assert is_in_use(places)
    assert may_be_removed(under(tmp_path / "gone"))


def test_a_remover_that_stops_keeps_nobody_for_ever(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes goes on without a hold after a second."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with exclusively(places):
        hold(places)
    assert sum(waits) == pytest.approx(1)
    assert not is_in_use(places)


def test_a_disk_without_locks(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holding is no error, and since nobody can tell who holds it, nobody may remove it."""

    def refuse(number: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    hold(places)
    assert not is_in_use(places)
    assert not may_be_removed(places)


def test_in_the_users_directory_nothing_is_made(tmp_path: Path) -> None:
    """It is never removed; where our records are, it is held all the same."""
    mine = tmp_path / "mine"
    places = Places(mine, (("inductor", mine), ("triton", mine / "triton" / "0")))
    hold(places)
    assert not mine.exists()
    (mine / RECORDS).mkdir(parents=True)
    hold(places)
    assert is_in_use(places)


def test_where_nothing_can_be_written_nothing_is_raised(tmp_path: Path) -> None:
    """A start goes on without a hold."""
    (tmp_path / "file").touch()
    hold(under(tmp_path / "file" / "live"))
    assert not is_in_use(under(tmp_path / "file" / "live"))


def test_a_link_in_the_way_is_not_followed(places: Places, tmp_path: Path) -> None:
    """Nothing is opened, locked or dated through it."""
    target = tmp_path / "target"
    target.touch()
    os.utime(target, (1, 1))
    file_of(places).symlink_to(target)
    hold(places)
    assert os.stat(target).st_mtime == 1
    assert not is_in_use(places)


RACE = """
for number in range(int(sys.argv[2])):
    if not (child := os.fork()):
        hold(places)
        fine = is_in_use(places) and places.records.is_dir()
        os.close(os.open(places.root / "mine", os.O_CREAT)) if fine else None
        os._exit(0 if fine and (places.root / "mine").exists() else 1)
    if os.waitpid(child, 0)[1]:
        print("lost", number, flush=True)
print("done", flush=True)
"""


@pytest.mark.parametrize("rounds", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_holders_and_removers_race(
    places: Places, start: Start, tmp_path: Path, rounds: int
) -> None:
    """60 processes, and 1000, take hold while another one removes the directory as often as it may:
    none loses it from under itself."""
    process = start("print('ready', flush=True)" + RACE, rounds)
    removed = 0
    while process.poll() is None and removed < rounds * 50:
        try:
            with exclusively(places) as is_alone:
                if is_alone:
                    places.root.rename(tmp_path / f"gone{removed}")
                    removed += 1
        except OSError:
            continue  # removed, and not made again yet
    assert process.stdout
    assert process.stdout.read() == "done\n"
    assert removed > rounds / 10
