"""A function at work in a thread beside the caller, who decides how long to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """A function in a thread that the end of the interpreter does not wait for.

    `ended` is called in that thread once `is_done` is true. `error` is what it raised.
    """

    def __init__(
        self, function: Callable[[], T], name: str, *, ended: Callable[[], None] | None = None
    ) -> None:
        self._function = function
        self._ended = ended
        self._done = threading.Event()
        self._over = threading.Event()
        self._results: list[T] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # raised again where the result is asked for
            self.error = error
        finally:
            self._done.set()
            try:
                if self._ended is not None:
                    self._ended()
            finally:
                self._over.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs; in a fork of the process that began it, it does not."""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits for the end, at most so long; whether it has come."""
        # Not by `join`: one that is interrupted leaves CPython 3.11 with the thread marked as
        # stopped while it runs, so that nobody would wait for it any more.
        if self.is_alive:
            self._over.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        return self.is_done

    def result(self) -> T:
        """What the function returned, once it is done; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self._results[0]
