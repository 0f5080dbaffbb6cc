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

from cachesvc.core.errors import StoreError, TccacheError
from cachesvc.start.work import Work

T = TypeVar("T")
WENT_ON = "the start went on without the bundle; a later one may find it, or give it more time"
_LOOK_S = 1.0


class DeadlinePassed(StoreError):
    """The time was up before the work had come to its commit."""


class Deadline:
    """Whether the caller still waits. Work asks before each long step, and commits once.

    `outcome` says in errors what became of the caller, and what to do.
    """

    def __init__(self, seconds: float | None = None, outcome: str = WENT_ON) -> None:
        self._seconds = seconds
        self._outcome = outcome
        self._lock = threading.Lock()
        self._closed = False
        self._committing = False
        self._held: list[Callable[[], object]] = []

    def check(self) -> None:
        """Raises DeadlinePassed if nobody waits any more."""
        if self._closed:
            raise DeadlinePassed(f"the deadline of {self._seconds:g} s passed: {self._outcome}")

    @contextmanager
    def holding(self, let_go: Callable[[], object]) -> Iterator[None]:
        """Within this context work holds what others wait for: the end of the time lets go of it.

        Work that is left behind may hang for as long as its process lives. `let_go` is called in
        the thread of whoever ends the time, and MUST NOT wait for anything.
        """
        with self._lock:
            self.check()
            self._held.append(let_go)
        try:
            yield
        finally:
            with self._lock:
                self._held.remove(let_go)

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
            if self._closed:
                for let_go in self._held:
                    let_go()
            return self._closed


def _beside(function: Callable[[], T], name: str) -> Work[T]:
    try:
        return Work(function, name)
    except RuntimeError as error:
        raise TccacheError(
            f"no thread can be started to wait for a store: {error}; see how many this user and"
            " this container may have"
        ) from error


def _wait_for(work: Work[T], seconds: float) -> bool:
    return work.wait(seconds)


def within(
    seconds: float | None,
    work: Callable[[Deadline], T],
    *,
    begun: float | None = None,
    outcome: str = WENT_ON,
    beside: Callable[[Callable[[], T], str], Work[T]] = _beside,
    wait_for: Callable[[Work[T], float], bool] = _wait_for,
) -> T:
    """The result of `work(deadline)`, or what it raised; without a limit it runs right here.

    The seconds count from `begun`, by `time.perf_counter`; from now on unless given. Raises
    DeadlinePassed, with `outcome`, once they are over; the work is left behind, and ends by itself
    at its next `check` or `commit`. `beside` begins the work and `wait_for` waits, where the caller
    has to look after something else meanwhile, such as signals.
    """
    deadline = Deadline(seconds, outcome)
    if seconds is None:
        return work(deadline)
    gone = 0.0 if begun is None else time.perf_counter() - begun
    try:
        thread = beside(lambda: work(deadline), "tccache-start")
        if not wait_for(thread, max(seconds - gone, 0.0)) and deadline.close():
            deadline.check()
        while not wait_for(thread, _LOOK_S):
            pass
    except BaseException:  # an interrupt: the caller goes on, so nothing may be committed any more
        deadline.close()
        raise
    return thread.result()
