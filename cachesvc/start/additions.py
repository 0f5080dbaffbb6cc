"""What a running program adds to the live directory, published beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cachesvc.core.address import ANY_MODEL, Address
from cachesvc.core.components import Components
from cachesvc.core.errors import TccacheError, unexpected
from cachesvc.core.merge import covers
from cachesvc.local.live import Live
from cachesvc.local.tree import FoundUnit, Scan
from cachesvc.local.usage import Watch, additions, listing
from cachesvc.repository.publish import Publication
from cachesvc.repository.repository import Repository
from cachesvc.start.access import TrustLike
from cachesvc.start.bundles import select
from cachesvc.start.goods import Goods, from_live_directory
from cachesvc.start.publishing import Pushed, facts_of, publish_goods
from cachesvc.start.settings import StoreLike, open_repository
from cachesvc.start.target import Target
from cachesvc.start.transfer import holdings
from cachesvc.start.trees import live_folders

_POLL_S = 1.0
# Looking takes at most this part of one processor's time.
_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Start:
    """What lay in the live directory when a program was started."""

    live: Live
    environment: Components
    scan: Scan
    watch: Watch
    pulled: frozenset[str] = frozenset()

    def news(self, goods: Goods) -> Goods:
        """The units that were added since, and those used that were not pulled.

        Where use cannot be told, everything that was never seeded here may have been used.
        """
        added = {unit.key for unit in additions(self.scan, goods.scan)}
        used = self.watch.used()

        def is_news(unit: FoundUnit) -> bool:
            if unit.key in added or unit.key in self.pulled:
                return unit.key in added
            return unit.key not in goods.origins if used is None else unit.key in used

        return goods.only(is_news)


@dataclass
class Publisher:
    """Publishes under a name what a program compiled, and what it used that was not pulled.

    Once while it runs, each time that no file has come for `settle_s` seconds, as many servers
    are killed in the end; and once afterwards. Trouble is told to `warn`, each kind once.
    """

    name: str
    store: StoreLike | None
    trust: TrustLike | None
    start: Start
    settle_s: float
    warn: Callable[[str], None]
    published: list[Publication] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _told: set[str] = field(default_factory=set)

    def work(self) -> None:
        """Looks and publishes until `finish` is called, and a last time then."""
        seen = published = self._listing()
        since, interval = time.monotonic(), 0.0
        while not self._ending.wait(max(interval, min(_POLL_S, self.settle_s / 2))):
            before = time.monotonic()
            listed = self._listing()
            interval = (time.monotonic() - before) / _SHARE
            if listed != seen:
                seen, since = listed, before
            elif seen != published and before - since >= self.settle_s:
                self._attempt()
                published = seen
        self._attempt()

    def finish(self) -> None:
        """Says that the program has ended."""
        self._ending.set()

    def _listing(self) -> frozenset[str]:
        return listing(live_folders(self.start.live))

    def _attempt(self) -> None:
        try:
            pushed = self._publish()
            if pushed is None:
                return
            self._tell(pushed.warnings)
            if pushed.publication.segment is not None:
                self.published.append(pushed.publication)
        except TccacheError as error:
            self._tell([f"nothing was published: {error}"])
        except Exception as error:  # the program goes on, whatever this library gets wrong
            self._tell([unexpected(error)])

    def _tell(self, messages: Iterable[str]) -> None:
        for message in messages:
            if message not in self._told:
                self._told.add(message)
                self.warn(message)

    def _publish(self) -> Pushed | None:
        """Publishes what there is; None, and no request to the store, if there is nothing."""
        if not self._news().scan.units:
            return None
        repository = open_repository(self.store, self.trust, signs=True)
        if not self._lacking(repository).scan.units:
            return None
        start = self.start
        address = Address(self.name, ANY_MODEL, start.environment.digest)
        goal = Target(address, start.environment, Components())
        return publish_goods(repository, goal, facts_of(goal), lambda: self._lacking(repository))

    def _news(self) -> Goods:
        return self.start.news(
            from_live_directory(self.start.environment.digest, self.start.live.trust)
        )

    def _lacking(self, repository: Repository) -> Goods:
        """The news that no bundle of the name holds: a program may publish some by itself."""
        chosen = select(repository, self.name)
        found = holdings(repository, chosen.bundles, foreign=False, signed=bool(repository.keys))
        held = found.signed_by(repository.signing)
        return self._news().only(lambda unit: not covers(held.get(unit.key), len(unit.files)))
