"""A publication beside the caller, who serves meanwhile."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from cachesvc.core.errors import TccacheError
from cachesvc.start.publishing import Pushed

EXIT_PATIENCE_S = 30.0
"""How long the end of the interpreter waits for a publication; one that is cut off is not seen."""


class Beside:
    """Runs a push in a thread. What goes wrong is kept, never raised: serving goes on."""

    def __init__(self, push: Callable[[], Pushed]) -> None:
        self._push = push
        self._pushed: Pushed | None = None
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="tccache-publish", daemon=True)
        self._thread.start()
        atexit.register(self._last_wait)

    def _run(self) -> None:
        try:
            self._pushed = self._push()
        except TccacheError as error:
            self._trouble = str(error)
        except Exception as error:  # serving goes on, whatever this library gets wrong
            self._trouble = f"internal error, please report it: {type(error).__name__}: {error}"
        finally:
            atexit.unregister(self._last_wait)

    def _last_wait(self) -> None:
        self.wait(EXIT_PATIENCE_S)

    @property
    def pushed(self) -> Pushed | None:
        """What was published; None before the end, or if it failed."""
        return self._pushed

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end, at most `timeout` seconds; whether it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def state(self) -> str:
        """`under way`, what was published and what is to be said about it, or what went wrong."""
        if self._trouble is not None:
            return f"failed: {self._trouble}"
        if self._pushed is None:
            return "under way" if self._thread.is_alive() else "left behind in another process"
        segment = self._pushed.publication.segment
        published = f"segment {segment[:12]}" if segment else "nothing to add"
        return "; ".join((published, *self._pushed.warnings))
