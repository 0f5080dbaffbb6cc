"""How a start goes on with what a prefetch has begun."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cachesvc.core.overlap import Overlap
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import Repository
from cachesvc.start.access import TrustLike
from cachesvc.start.begun import Begun
from cachesvc.start.prefetch import take
from cachesvc.start.settings import StoreLike, open_repository
from cachesvc.start.target import Target


@dataclass
class Joined:
    """What a start has of a prefetch; of none, where there was none for its name and store.

    `called` is the moment at which the start was called, `waits` when it waited.
    """

    begun: Begun | None
    store: StoreLike | None
    trust: TrustLike | None
    called: float
    waits: list[tuple[float, float]] = field(default_factory=list)
    _repository: Repository | None = None
    _listed: tuple[Bundle, ...] = ()

    def await_bundle(self, model: str, seconds: float) -> None:
        """Waits for what the start of a model (its digest) needs, at most so long."""
        if self.begun is None:
            return
        with self._wait():
            self.begun.join(model, seconds)
        if handed := self.begun.hand_over():
            self._repository, self._listed = handed

    def await_imports(self) -> None:
        """Waits for the compiler's imports, if they were begun."""
        if self.begun is not None:
            with self._wait():
                self.begun.await_imports()

    def open(self) -> Repository:
        """The repository, opened already or now. Raises what `open_repository` raises."""
        return self._repository or open_repository(self.store, self.trust)

    def take_listed(self) -> tuple[Bundle, ...]:
        """What the store listed under the name, once: whoever asks again wants it anew."""
        listed, self._listed = self._listed, ()
        return listed

    @property
    def overlap(self) -> Overlap | None:
        """The ledger; None where there was no prefetch."""
        if self.begun is None:
            return None
        return self.begun.overlap(self.called, tuple(self.waits))

    @contextmanager
    def _wait(self) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.waits.append((begun, time.perf_counter()))


def join(
    goal: Target, store: StoreLike | None, trust: TrustLike | None, *, called: float, seconds: float
) -> Joined:
    """Waits for the prefetch of this name, store and word of trust, until `seconds` after `called`.

    It counts for one start: what comes later looks for itself.
    """
    joined = Joined(take(goal.address.name, store, trust), store, trust, called)
    joined.await_bundle(goal.address.model, max(0.0, called + seconds - time.perf_counter()))
    return joined
