"""A few threads for work beside the caller that the end of the interpreter never waits for.

`concurrent.futures.ThreadPoolExecutor` joins its threads when the interpreter ends, so a store that
hangs would keep a finished program alive, and it takes no more work by then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_Job = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class DaemonPool:
    """Runs jobs in at most `size` daemon threads, started as jobs come.

    Where no thread can be started at all, as at the end of an interpreter of Python 3.12, a job is
    done by who submits it; or, with `beside_only`, RuntimeError is raised.
    """

    def __init__(self, size: int, name: str, *, beside_only: bool = False) -> None:
        self._beside_only = beside_only
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, function: Callable[..., R], *args: Any) -> Future[R]:
        """A future for `function(*args)`."""
        future: Future[R] = Future()
        job = future, function, args
        if len(self._threads) < self._size:
            self._grow()
        if self._threads:
            self._jobs.put(job)
        else:
            self._do(job)
        return future

    def _grow(self) -> None:
        """Starts one more thread, if that is possible."""
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if self._beside_only and not self._threads:
                raise
        else:
            self._threads.append(thread)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results in the order of the items; raises what a call raised."""
        futures = [self.submit(function, item) for item in items]
        return (future.result() for future in futures)

    def close(self, *, wait: bool = True) -> None:
        """Drops what has not begun, and waits for what has, unless told not to."""
        with suppress(Empty):  # a thread may take the last one at any moment
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def __enter__(self) -> DaemonPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # At an interrupt nobody waits: a job may hang.
        self.close(wait=kind is None or issubclass(kind, Exception))

    def _work(self) -> None:
        while self._do(self._jobs.get()):
            pass

    def _do(self, job: _Job | None) -> bool:
        """Does a job; whether it was one. Nothing of it is kept alive afterwards."""
        if job is None:
            return False
        future, function, args = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)
        return True
