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
        atexit.register(self._last_wait)
        self._work = Work(push, "tccache-publish", ended=self._forget)

    def _forget(self) -> None:
        atexit.unregister(self._last_wait)

    def _last_wait(self) -> None:
        self.wait(EXIT_PATIENCE_S)

    @property
    def pushed(self) -> Pushed | None:
        """What was published; None before the end, or if it failed."""
        return self._work.result() if self._work.is_done and not self._work.error else None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end, at most `timeout` seconds; whether nothing is under way here now."""
        self._work.wait(timeout)
        return not self._work.is_alive

    def state(self) -> str:
        """`under way`, what was published and what is to be said about it, or what went wrong."""
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
