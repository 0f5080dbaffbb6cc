"""Publications beside the caller: what becomes of them, and of the process that ends meanwhile."""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading

import pytest

from cachesvc.core.address import Address
from cachesvc.core.errors import StoreError
from cachesvc.repository.publish import Publication
from cachesvc.start.beside import Beside
from cachesvc.start.publishing import Pushed

ADDRESS = Address("m", "any", "0" * 64)


def pushed(segment: str | None, *warnings: str) -> Pushed:
    return Pushed(Publication(ADDRESS, segment), 0, 0, 0, warnings=warnings)


def test_states() -> None:
    """Under way, then the segment, or that there was nothing to add."""
    go = threading.Event()

    def push() -> Pushed:
        go.wait(60)
        return pushed("a" * 64)

    beside = Beside(push)
    assert beside.state() == "under way"
    assert not beside.wait(0.001)
    go.set()
    assert beside.wait(60)
    assert beside.state() == "segment aaaaaaaaaaaa"
    assert beside.pushed == pushed("a" * 64)
    nothing = Beside(lambda: pushed(None))
    assert nothing.wait(60)
    assert nothing.state() == "nothing to add"


@pytest.mark.parametrize(
    ("segment", "told"), [("a" * 64, "segment aaaaaaaaaaaa"), (None, "nothing to add")]
)
def test_warnings_are_told(segment: str | None, told: str) -> None:
    """Of a publication beside the caller nobody else hears what was left out."""
    beside = Beside(lambda: pushed(segment, "one file is damaged", "another one too"))
    assert beside.wait(60)
    assert beside.state() == f"{told}; one file is damaged; another one too"


def test_trouble_is_told_and_not_raised() -> None:
    """Serving goes on, whatever the store says, and whatever this library gets wrong."""

    def refused() -> Pushed:
        raise StoreError("the store is away")

    def broken() -> Pushed:
        raise KeyError("x")

    for push, text in ((refused, "failed: the store is away"), (broken, "internal error")):
        beside = Beside(push)
        assert beside.wait(60)
        assert text in beside.state()
        assert beside.pushed is None


SCRIPT = """
import threading
import cachesvc.start.beside as module
from cachesvc.start.beside import Beside
module.EXIT_PATIENCE_S = {patience}
begun = threading.Event()
def push():
    begun.set()
    {work}
    print("published", flush=True)
Beside(push)
begun.wait()
print("over", flush=True)
"""


def _ended(work: str, patience: float) -> str:
    script = SCRIPT.format(work=work, patience=patience)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_the_end_of_the_process_waits_for_a_publication() -> None:
    """A job of a few seconds publishes too."""
    assert _ended("threading.Event().wait(0.3)", 60) == "over\npublished\n"


def test_the_end_of_the_process_does_not_wait_for_ever() -> None:
    """A store that hangs keeps no finished program alive."""
    assert _ended("threading.Event().wait()", 0.1) == "over\n"


def test_a_fork_knows_that_the_publication_is_not_its_own() -> None:
    """It neither waits nor claims that it is under way."""
    script = """
import os, threading
from cachesvc.start.beside import Beside
go = threading.Event()
beside = Beside(lambda: go.wait(60))
child = os.fork()
if child == 0:
    assert beside.wait(), "waits"
    os._exit(0 if beside.state().startswith("left behind") else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
print(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "0\n"


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of the interpreter: that is what became of it, and nobody waits."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    waits: list[object] = []
    monkeypatch.setattr(atexit, "register", waits.append)
    monkeypatch.setattr(atexit, "unregister", waits.remove)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    beside = Beside(lambda: pushed(None))
    assert beside.state() == (
        "failed: no thread can be started for it: can't create new thread at interpreter shutdown"
    )
    assert beside.wait()
    assert beside.pushed is None
    assert waits == []
