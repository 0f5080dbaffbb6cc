"""Work beside the program that a start may go on with: bundles, and the compiler's imports.

Loads little itself: what is needed is imported in the thread that needs it.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import TYPE_CHECKING

from cachesvc.core.errors import TccacheError, unexpected
from cachesvc.core.overlap import Overlap, Span, stages
from cachesvc.start.access import TrustLike
from cachesvc.start.options import chosen_tier, deadline_seconds
from cachesvc.start.settings import StoreLike
from cachesvc.start.work import Work

if TYPE_CHECKING:
    from cachesvc.repository.listing import Bundle
    from cachesvc.repository.repository import Repository
    from cachesvc.start.ahead import Ahead

_EXIT_S = 1.0
"""How long the end of the interpreter waits for imports to break off; they do at the next one."""

_LOOK_S = 1.0


class Begun:
    """What was begun under a label. What goes wrong is kept, never raised."""

    def __init__(self, label: str, *, refusal: str = "") -> None:
        self.label = label
        self._refusal = refusal
        self._pid = os.getpid()
        self._work: Work[None] | None = None
        self._ahead: Ahead | None = None
        self._imports: Work[None] | None = None
        self._imported: list[Span] = []
        self._joined = self._left = self._over = False

    @property
    def is_own(self) -> bool:
        """Whether this process began it; a fork has none of its threads."""
        return self._pid == os.getpid()

    def begin(
        self,
        store: StoreLike | None,
        trust: TrustLike | None,
        tier: str | None,
        deadline: float | None,
    ) -> None:
        """Begins to bring the bundles."""
        begun = time.perf_counter()

        def work() -> None:
            from cachesvc.start.ahead import Ahead

            seconds, tiers = deadline_seconds(deadline), chosen_tier(tier)
            self._ahead = Ahead(self.label, store, trust, tiers=tiers, begun=begun, seconds=seconds)
            if not self._joined:
                self._ahead.work()

        try:
            self._work = Work(work, "tccache-prefetch")
        except RuntimeError as error:
            self._refusal = f"no thread can be started for it: {error}"

    def import_compiler(self) -> None:
        """Begins to import the compiler, unless that was begun."""
        if self._imports is not None or self._refusal:
            return
        try:
            self._imports = Work(self._import_compiler, "tccache-imports")
        except RuntimeError as error:
            self._refusal = f"no thread can be started for it: {error}"
        else:
            atexit.register(self._break_off)

    def _import_compiler(self) -> None:
        from cachesvc.runtime.compiler_imports import ImportsEnded, close_gate

        try:
            gate = close_gate(lambda: self._over)
            if gate is None:
                return
            begun = time.perf_counter()
            gate.import_all()
            self._imported.append(Span("compiler imports", begun, time.perf_counter()))
        except ImportsEnded:
            return

    def _break_off(self) -> None:
        """Python may not end a thread amid C++ code of an import."""
        self._over = True
        if self._imports is not None:
            self._imports.wait(_EXIT_S)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the bundles, at most `timeout` seconds; whether none is under way here now."""
        if self._work is None:
            return True
        self._work.wait(timeout)
        return not self._work.is_alive

    def state(self) -> str:
        """`under way`, what was done, or what went wrong, in a sentence."""
        if self._refusal:
            return self._refusal
        if not self.is_own:
            return "left behind in another process"
        if self._work is not None and self._work.is_alive:
            return "under way"
        return str(self.overlap(time.perf_counter(), ()))

    def join(self, model: str, seconds: float) -> None:
        """Waits for what the start of a model (its digest) needs of it, at most so long.

        No other bundle is begun, and nothing enters the live directory any more afterwards.
        """
        self._joined = True
        work, ahead = self._work, self._ahead
        if work is None:
            return
        if ahead is not None:
            ahead.end()
        try:
            patience = seconds if ahead is None or ahead.is_wanted(model) else 0.0
            if not work.wait(patience) and self._close():
                return
            while not work.wait(_LOOK_S):
                pass
        except BaseException:  # an interrupt: the caller goes on, so nothing may be committed
            self._close()
            raise

    def _close(self) -> bool:
        """Whether nothing can enter the live directory any more."""
        self._left = self._ahead is None or self._ahead.close()
        return self._left

    def await_imports(self) -> None:
        """Waits for the compiler's imports that are under way: the first call needs them, too."""
        if self._imports is not None:
            from cachesvc.runtime.compiler_imports import PATIENCE_S

            self._imports.wait(PATIENCE_S)

    def overlap(self, called: float, waits: tuple[tuple[float, float], ...]) -> Overlap:
        """The ledger, for a start that was called then and has waited in these times."""
        ahead = self._ahead
        spans = [*(ahead.spans() if ahead else ()), *self._imported]
        return Overlap(
            stages=stages(spans, called=called, waits=waits),
            packs=ahead.packs if ahead else 0,
            bytes=ahead.bytes if ahead else 0,
            trouble="; ".join(self._troubles()),
        )

    def _troubles(self) -> list[str]:
        refused = list(self._ahead.refused) if self._ahead else []
        errors = [work.error for work in (self._work, self._imports) if work is not None]
        told = [_told(error) for error in errors if error is not None]
        if self._left:
            told = []  # it was broken off, and whoever did so knows why
        return [*filter(None, [self._refusal]), *refused, *told]

    def hand_over(self) -> tuple[Repository, tuple[Bundle, ...]] | None:
        """The open repository with what it lists under the name; None without."""
        ahead = self._ahead
        if ahead is None or ahead.repository is None or ahead.listed is None:
            return None
        return ahead.repository, ahead.listed


def _told(error: BaseException) -> str:
    if isinstance(error, TccacheError) or not isinstance(error, Exception):
        return str(error)
    return unexpected(error)
