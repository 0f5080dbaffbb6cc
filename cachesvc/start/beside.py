"""A publication beside the caller, who serves meanwhile."""

from __future__ import annotations

import atexit
from collections.abc import Callable

from cachesvc.core.errors import TccacheError, unexpected
from cachesvc.start.publishing import Pushed
from cachesvc.start.work import Work

EXIT_PATIENCE_S = 30.0
"""How long the end of the interpreter waits for a publication; one that is cut off is not seen."""


class Beside:
    """Runs a push in a thread. What goes wrong is kept, never raised: serving goes on."""

    def __init__(self, push: Callable[[], Pushed]) -> None:
        self._work: Work[Pushed] | None = None
        self._refusal = ""
        atexit.register(self._last_wait)
        try:
            self._work = Work(push, "tccache-publish", ended=self._forget)
        except RuntimeError as error:  # as at the end of the interpreter
            self._forget()
            self._refusal = f"no thread can be started for it: {error}"

    def _forget(self) -> None:
        atexit.unregister(self._last_wait)

    def _last_wait(self) -> None:
        self.wait(EXIT_PATIENCE_S)

    @property
    def pushed(self) -> Pushed | None:
        """What was published; None before the end, or if it failed."""
        work = self._work
        return work.result() if work is not None and work.is_done and not work.error else None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end, at most `timeout` seconds; whether nothing is under way here now."""
        if self._work is None:
            return True
        self._work.wait(timeout)
        return not self._work.is_alive

    def state(self) -> str:
        """`under way`, what was published and what is to be said about it, or what went wrong."""
        if self._work is None:
            return f"failed: {self._refusal}"
        error = self._work.error
        if isinstance(error, TccacheError):
            return f"failed: {error}"
        if isinstance(error, Exception):
            return f"failed: {unexpected(error)}"
        if (pushed := self.pushed) is None:
            return "under way" if self._work.is_alive else "left behind in another process"
        segment = pushed.publication.segment
        published = f"segment {segment[:12]}" if segment else "nothing to add"
        return "; ".join((published, *pushed.warnings))
