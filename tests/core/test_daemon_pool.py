"""Threads that nobody waits for at the end of the interpreter."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest

from cachesvc.core.daemon_pool import DaemonPool


def test_results_come_in_order() -> None:
    """Whatever thread is the first to end."""
    with DaemonPool(4, "test") as pool:
        assert list(pool.map(lambda number: number * number, range(50))) == [
            number * number for number in range(50)
        ]


def test_what_a_job_raises_is_raised_by_its_future() -> None:
    """And the thread goes on with the next job."""

    def half(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number // 2

    with DaemonPool(1, "test") as pool:
        odd, even = pool.submit(half, 3), pool.submit(half, 4)
        with pytest.raises(ValueError, match="3"):
            odd.result()
        assert even.result() == 2


def test_an_interrupt_does_not_wait() -> None:
    """A job may hang, and the end is asked for."""
    begun, go, ended = (threading.Event() for _ in range(3))

    def hang() -> None:
        begun.set()
        go.wait(60)
        ended.set()

    def interrupted() -> None:
        with DaemonPool(1, "test") as pool:
            pool.submit(hang)
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not ended.is_set()
    go.set()
    assert ended.wait(60)


def test_closing_drops_what_has_not_begun() -> None:
    """A job under way is waited for, one behind it is cancelled."""
    began, go = threading.Event(), threading.Event()
    pool = DaemonPool(1, "test")

    def first() -> str:
        began.set()
        go.wait(10)
        return "done"

    one, two = pool.submit(first), pool.submit(first)
    began.wait(10)
    closing = threading.Thread(target=pool.close)
    closing.start()
    while not two.cancelled():
        pass
    go.set()
    closing.join(10)
    assert one.result() == "done"


def test_closing_while_a_thread_takes_the_last_job() -> None:
    """Between the look for a job and its taking somebody else may have had it."""

    class Late(SimpleQueue[Any]):
        def empty(self) -> bool:
            found = super().empty()
            if not found:
                self.get_nowait()  # as the pool's own thread does
            return found

    pool = DaemonPool(1, "test")
    pool._jobs = Late()
    pool._jobs.put((Future(), print, ()))
    closing = threading.Thread(target=pool.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()


def test_the_interpreter_ends_while_a_job_hangs() -> None:
    """A thread that waits for ever keeps no program alive."""
    script = (
        "import threading; from cachesvc.core.daemon_pool import DaemonPool;"
        "began = threading.Event();"
        "DaemonPool(2, 'x').submit(lambda: (began.set(), threading.Event().wait()));"
        "began.wait(); print('over')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("over\n", "")


def test_jobs_may_begin_while_the_interpreter_ends() -> None:
    """A publication that an exit waits for goes on until it is through."""
    script = (
        "import atexit; from cachesvc.core.daemon_pool import DaemonPool;"
        "atexit.register(lambda: print(DaemonPool(1, 'x').submit(lambda: 'late').result()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "late\n"


def _no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs are done by who submits them, in order, and closing waits for nobody."""
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    with DaemonPool(2, "test") as pool:
        names = pool.map(lambda _: threading.current_thread().name, range(3))
        assert set(names) == {threading.current_thread().name}
        with pytest.raises(ZeroDivisionError):
            pool.submit(lambda: 1 // 0).result()
    with pytest.raises(RuntimeError, match="new thread"):
        DaemonPool(1, "test", beside_only=True).submit(print)


def test_where_no_more_threads_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there do the rest."""
    with DaemonPool(2, "test") as pool:
        assert pool.submit(lambda: 1).result() == 1
        monkeypatch.setattr(threading.Thread, "start", _no_thread)
        names = list(pool.map(lambda _: threading.current_thread().name, range(3)))
        assert set(names) == {"test"}
