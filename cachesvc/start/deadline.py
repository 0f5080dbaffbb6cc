"""A time limit for what a start does before the first call.

The work runs beside the caller, who waits no longer than the limit. The invariant: work enters the
live directory only inside `commit`, and `commit` and the end of the time exclude each other, so
nothing changes there once the caller has gone on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cachesvc.core.errors import TccacheError
from cachesvc.start.work import Work

T = TypeVar("T")


class DeadlinePassed(TccacheError):
    """The time was up before the work had come to its commit."""


class Deadline:
    """Whether the caller still waits. Work asks before each long step, and commits once."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._closed = False
        self._committing = False

    def check(self) -> None:
        """Raises DeadlinePassed if nobody waits any more."""
        if self._closed:
            raise DeadlinePassed(
                f"the deadline of {self._seconds:g} s passed: the start went on without the bundle;"
                " a later one may find it, or give it more time"
            )

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Within this context the caller waits, however long it takes."""
        with self._lock:
            self.check()
            self._committing = True
        yield

    def close(self) -> bool:
        """Ends the time, unless a commit has begun; whether it did."""
        with self._lock:
            self._closed = not self._committing
            return self._closed


def within(
    seconds: float | None, work: Callable[[Deadline], T], *, begun: float | None = None
) -> T:
    """The result of `work(deadline)`, or what it raised; without a limit it runs right here.

    The seconds count from `begun`, by `time.perf_counter`; from now on unless given. Raises
    DeadlinePassed once they are over; the work is left behind, and ends by itself at its next
    `check` or `commit`.
    """
    deadline = Deadline(seconds)
    if seconds is None:
        return work(deadline)
    gone = 0.0 if begun is None else time.perf_counter() - begun
    beside = Work(lambda: work(deadline), "tccache-start")
    try:
        if not beside.wait(max(seconds - gone, 0.0)):
            if deadline.close():
                deadline.check()
            beside.wait()
    except BaseException:  # an interrupt: the caller goes on, so nothing may be committed any more
        deadline.close()
        raise
    return beside.result()
