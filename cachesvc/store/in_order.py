"""Several jobs at once, their results in order, without holding up the end of the process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def in_order(jobs: Iterable[Callable[[], T]], at_once: int) -> Iterator[T]:
    """Runs the jobs on `at_once` threads and yields their results in the order of the jobs.

    At most `at_once` results exist that were not yielded yet. A job's exception is raised in its
    place, once all jobs that were begun have ended; no job begins after it. Who is interrupted, or
    wants no more results, does not wait for the jobs: one may hang. The threads are daemons: an
    interpreter that exits does not wait for them, as it would for an executor's.
    """
    running: deque[_Job[T]] = deque()
    try:
        for job in jobs:
            if len(running) == at_once:
                yield running.popleft().result()
            running.append(_Job(job))
        while running:
            yield running.popleft().result()
    except Exception:
        for left in running:
            left.wait()
        raise


def beside(call: Callable[[], object], seconds: float) -> None:
    """Makes a call on a thread of its own, and waits for it at most so long; drops its outcome."""
    _Job(call).wait(seconds)


class _Job(Generic[T]):
    """One call on a thread of its own; right here where none can be started, as at the end of an
    interpreter of Python 3.12."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tccache-transfer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._run()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:  # it is raised where the result is asked for
            self._error = error

    def wait(self, seconds: float | None = None) -> None:
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def result(self) -> T:
        self.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]
