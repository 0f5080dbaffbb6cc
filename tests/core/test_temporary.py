"""Temporary files and folders: there while a process has them, gone when none does."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachesvc.core import temporary
from cachesvc.core.temporary import (
    MARK,
    make_folder,
    new_file,
    remove_folder,
    remove_left,
    remove_left_once,
)

# Makes a folder and a file, says so, and stays until it is killed or its stdin ends.
HOLDER = """
import os, sys
from pathlib import Path
from cachesvc.core.temporary import make_folder, new_file

parent = Path(sys.argv[1])
with new_file(parent) as (path, file):
    file.write(b"half")
    folder = make_folder("held-", parent)
    Path(folder, "deep").mkdir()
    if sys.argv[2] == "fork" and os.fork():
        sys.stdin.close()
        os.kill(os.getpid(), 9)
    print("ready", flush=True)
    sys.stdin.read()
"""

Holder = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    """A function that starts a process with temporaries in the test's folder."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_process_holds_stays_until_it_is_killed(tmp_path: Path, holder: Holder) -> None:
    """The kernel says who lives: nothing is removed while it runs, all of it after SIGKILL."""
    process = holder("plain")
    assert len(left(tmp_path)) == 2
    remove_left(tmp_path)
    assert len(left(tmp_path)) == 2
    process.kill()
    process.wait()
    assert len(left(tmp_path)) == 2
    remove_left(tmp_path)
    assert left(tmp_path) == []


def test_a_fork_holds_what_its_parent_had(tmp_path: Path, holder: Holder) -> None:
    """A worker may still be at work in a folder of the server that was killed."""
    process = holder("fork")
    assert process.wait() == -9
    remove_left(tmp_path)
    assert len(left(tmp_path)) == 2
    process.communicate()  # its stdout ends with the fork
    remove_left(tmp_path)
    assert left(tmp_path) == []


def test_only_what_is_ours_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other names, links, and what belongs to another user stay; what they lead to does, too."""
    (tmp_path / "tccache-push-1").mkdir()
    (tmp_path / "precious").write_bytes(b"1")
    (tmp_path / f"link{MARK}").symlink_to(tmp_path / "precious")
    (tmp_path / f"old{MARK}").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 4711)
        remove_left(tmp_path)
    assert len(left(tmp_path)) == 4
    remove_left(tmp_path)
    assert left(tmp_path) == [f"link{MARK}", "precious", "tccache-push-1"]
    remove_left(tmp_path / "nowhere")


def test_a_folder_of_others_is_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull of many packs does not list the temporary directory for each; another is another."""
    monkeypatch.setattr(temporary, "_swept", set())
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"1{MARK}").touch()
        remove_left_once(folder)
        assert list(folder.iterdir()) == []
        (folder / f"2{MARK}").touch()
        remove_left_once(folder)
        assert len(list(folder.iterdir())) == 1


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has none: temporaries are made, and nobody can know who lives."""

    def refuse(number: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = make_folder("a-", tmp_path)
    remove_left(tmp_path)
    assert left(tmp_path) == [Path(folder).name]
    remove_folder(folder)
    assert left(tmp_path) == []


@pytest.mark.parametrize("when", ["before the lock", "within it"])
def test_what_is_taken_for_left_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Another process looks between the making and the lock: it removes what nobody holds yet."""
    flock, calls = fcntl.flock, []

    def raced(number: int, operation: int) -> None:
        calls.append(number)
        if len(calls) not in (1, 3):
            flock(number, operation)
        elif when == "within it":
            raise BlockingIOError
        else:
            flock(number, operation)
            (made,) = tmp_path.glob(f"*{MARK}")
            made.rmdir() if made.is_dir() else made.unlink()

    monkeypatch.setattr(fcntl, "flock", raced)
    folder = make_folder("a-", tmp_path)
    assert Path(folder).is_dir()
    remove_folder(folder)
    with new_file(tmp_path) as (path, file):
        file.write(b"1")
        file.flush()
        assert path.read_bytes() == b"1"
    assert len(calls) == 4


def test_what_always_vanishes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying has an end."""
    monkeypatch.setattr(temporary, "_hold", lambda number, path: False)
    with pytest.raises(OSError, match="keeps vanishing"):
        make_folder("a-", tmp_path)
    with pytest.raises(OSError, match="keeps vanishing"), new_file(tmp_path):
        pass
