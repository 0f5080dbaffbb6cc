"""A job that is done once things have settled: in a thread, beside the caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Settling:
    """Does a job each time that `touch` was called and then not again for `settle_s` seconds, and
    at the end if it was touched since. The job must not raise.

    Its thread begins at the first touch; the end of the interpreter does not wait for it.
    """

    def __init__(self, job: Callable[[], None], settle_s: float, name: str) -> None:
        self._job = job
        self._settle_s = settle_s
        self._name = name
        self._changed = threading.Condition()
        self._touched: float | None = None
        self._busy = self._ending = False
        self._thread: threading.Thread | None = None

    def touch(self) -> None:
        """Says that something has changed; once `finish` was called it is too late.

        Raises RuntimeError where no thread can be started, as at the end of the interpreter: then
        nothing waits to be done, and the next touch tries again.
        """
        with self._changed:
            if self._ending:
                return
            if self._thread is None:
                self._begin()
            self._touched = time.monotonic()
            self._changed.notify_all()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            raise

    @property
    def is_waiting(self) -> bool:
        """Whether it was touched and the job has not begun since."""
        return self._touched is not None

    @property
    def is_busy(self) -> bool:
        """Whether the job is being done."""
        return self._busy

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until there is nothing to do, at most so long; whether that is so."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, seconds)

    def finish(self, seconds: float | None = None) -> bool:
        """Has the job done now if it waits, and no more afterwards; waits for it, at most so
        long; whether it has ended."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        return self.wait(seconds)

    def _is_idle(self) -> bool:
        return self._touched is None and not self._busy

    def _work(self) -> None:
        while self._awaits():
            self._job()
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _awaits(self) -> bool:
        """Waits until the job is to be done; False if it never will be again."""
        with self._changed:
            while not self._is_due():
                if self._ending:
                    return False
                self._changed.wait(self._left())
            self._touched, self._busy = None, True
            return True

    def _is_due(self) -> bool:
        left = self._left()
        return left is not None and (left <= 0 or self._ending)

    def _left(self) -> float | None:
        """Seconds until things count as settled; None if nothing has changed."""
        if self._touched is None:
            return None
        return self._touched + self._settle_s - time.monotonic()
