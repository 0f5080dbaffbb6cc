"""Work beside the caller: what becomes of its result, and whom its end reaches."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from cachesvc.start.work import Work


def test_what_it_returns_and_raises_is_the_callers() -> None:
    """Once it is done; an interrupt of the work too."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    seven = Work(lambda: 7, "test")
    assert seven.wait(60)
    assert seven.result() == 7
    broken = Work(interrupted, "test")
    assert broken.wait(60)
    with pytest.raises(KeyboardInterrupt):
        broken.result()


def test_it_is_waited_for_as_long_as_told() -> None:
    """And its end is told, in its thread, to who asked for that: then it is done."""
    go, told = threading.Event(), []
    work = Work(lambda: go.wait(60), "test", ended=lambda: told.append(work.is_done))
    assert not work.wait(0.001)
    assert not work.is_done
    go.set()
    assert work.wait()
    assert told == [True]


def test_the_end_of_the_interpreter_does_not_wait_for_it() -> None:
    """A store that hangs keeps no finished program alive."""
    script = (
        "import threading\nfrom cachesvc.start.work import Work\n"
        "Work(threading.Event().wait, 'test')\nprint('over')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("over\n", "")


def test_a_wait_that_was_interrupted_can_be_taken_up_again() -> None:
    """The work still counts as alive, for this class and for `threading`, until its end."""
    script = """
import os, signal, sys, threading
from cachesvc.start.work import Work

begun, go = threading.Event(), threading.Event()
work = Work(lambda: (begun.set(), go.wait(60)) and 7, "test")
begun.wait(60)
main = threading.get_ident()

def waits():
    frame = sys._current_frames()[main]
    return frame.f_code.co_filename == threading.__file__ and "wait" in callers(frame)

def callers(frame):
    while frame := frame.f_back:
        if frame.f_globals["__name__"] == Work.__module__:
            yield frame.f_code.co_name

def interrupt():
    while not waits():
        pass
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    work.wait(60)
except KeyboardInterrupt:
    print(work.is_alive, "test" in {thread.name for thread in threading.enumerate()})
go.set()
print(work.wait(60), work.result())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("True True\nTrue 7\n", "")
