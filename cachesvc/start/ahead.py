"""What a prefetch does in its thread: environment, live directory, listing, bundle by bundle.

No model exists yet, so everything under the name for this environment is brought, the newest
bundle first. Each is brought by itself, as the start of its model would bring it: that start then
finds a receipt for just what it looks for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cachesvc.core.address import ANY_MODEL
from cachesvc.core.errors import BusyError, IntegrityError
from cachesvc.core.overlap import Span
from cachesvc.core.report import Transfer
from cachesvc.core.tier import Allowed
from cachesvc.local.host import read_environment
from cachesvc.local.places import Places
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import Repository
from cachesvc.runtime.directories import current, use
from cachesvc.start.access import TrustLike, access
from cachesvc.start.bring import bring
from cachesvc.start.bundles import Selection
from cachesvc.start.deadline import Deadline
from cachesvc.start.progress import quiet
from cachesvc.start.scope import scope_of
from cachesvc.start.settings import StoreLike, open_repository


class Until(Deadline):
    """A deadline that nobody waits for: it has passed from a moment on, by `time.perf_counter`."""

    def __init__(self, seconds: float, moment: float) -> None:
        super().__init__(seconds)
        self._moment = moment

    def check(self) -> None:
        if time.perf_counter() >= self._moment:
            self._closed = True
        super().check()


class Ahead:
    """The work of one prefetch, and what there is of it so far.

    `repository` and `listed` are what a start can go on with. Read by one thread while another
    works; `end` may be called from any.
    """

    def __init__(
        self,
        label: str,
        store: StoreLike | None,
        trust: TrustLike | None,
        *,
        tiers: Allowed,
        begun: float,
        seconds: float,
    ) -> None:
        self._label, self._store, self._trust = label, store, trust
        self._tiers = tiers
        self._seconds = seconds
        self._until = begun + seconds
        self._ended = False
        self._deadline = Until(seconds, self._until)
        self._spans: list[Span] = []
        self._under_way: tuple[str, float] | None = None
        self._in_hand: Bundle | None = None
        self._models: frozenset[str] = frozenset()
        self._done: set[str] = set()
        self.repository: Repository | None = None
        self.listed: tuple[Bundle, ...] | None = None
        self.packs = 0
        self.bytes = 0
        self.refused: list[str] = []

    def work(self) -> None:
        """Brings it all, until `end` or the deadline. Raises what a pull raises."""
        left = self._until - time.perf_counter()
        timer = threading.Timer(min(max(left, 0.0), threading.TIMEOUT_MAX), self.close)
        timer.daemon = True
        timer.start()
        try:
            self._work()
        finally:
            timer.cancel()

    def _work(self) -> None:
        with self._stage("pull"):
            environment = read_environment().digest
            live = current(environment, scope_of(access(self._trust)))
            use(live)
            self._deadline.check()
            self.repository = repository = open_repository(self._store, self._trust)
            listed = repository.bundles(self._label)
            here = [b for b in listed if b.address.environment == environment and b.segments]
            self._models = frozenset(bundle.address.model for bundle in here)
            self.listed = listed
        for bundle in sorted(here, key=lambda b: b.modified, reverse=True):
            self._in_hand, self._deadline = bundle, Until(self._seconds, self._until)
            if self._ended:
                return
            self._bring(repository, bundle, live.places)
            self._done.add(bundle.address.model)
        self._in_hand = None

    def _bring(self, repository: Repository, bundle: Bundle, places: Places) -> None:
        begun = time.perf_counter()
        moved = Transfer()
        self._under_way = "pull", begun
        try:
            chosen = Selection((bundle,), foreign=False)
            brought = bring(repository, chosen, places, quiet, self._deadline, tiers=self._tiers)
            moved = brought.transfer
            self.refused += brought.refused
        except (BusyError, IntegrityError) as error:  # the next bundle may be in order
            self.refused.append(str(error))
        finally:
            ended = time.perf_counter()
            seeding = ended - moved.seed_s
            self._under_way = None
            self._spans += [Span("pull", begun, seeding), Span("seed", seeding, ended)]
        self.packs += moved.packs
        self.bytes += moved.bytes

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        self._under_way = name, begun
        try:
            yield
        finally:
            self._under_way = None
            self._spans.append(Span(name, begun, time.perf_counter()))

    def spans(self) -> list[Span]:
        """What was done so far, up to this moment."""
        under_way = self._under_way
        more = [Span(*under_way, time.perf_counter())] if under_way else []
        return [*self._spans, *more]

    def is_wanted(self, model: str) -> bool:
        """Whether what is in hand may be what the start of a model (its digest) looks for.

        False where that lies there already, or is listed and its turn has not come.
        """
        in_hand = self._in_hand
        if in_hand is None:
            return True
        own = model if model in self._models else ANY_MODEL
        return own not in self._models or in_hand.address.model == own

    def end(self) -> None:
        """Begins no further bundle."""
        self._ended = True

    def close(self) -> bool:
        """Ends what is in hand, too, unless its commit has begun; whether it did."""
        return self._deadline.close()
