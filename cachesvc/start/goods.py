"""What is going to be published: units of cache directories, with who made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cachesvc.core.address import ANY_MODEL
from cachesvc.core.components import Components
from cachesvc.core.manifest import Origin
from cachesvc.local.layout import unit_of
from cachesvc.local.ledger import Ledger
from cachesvc.local.live import Live
from cachesvc.local.megafile import Artifact
from cachesvc.local.slim import slim
from cachesvc.local.tree import FoundUnit, Scan, scan
from cachesvc.runtime.directories import of_process
from cachesvc.start.trees import Trees, live_folders

_KEYED = ("inductor/fxgraph/", "inductor/aotautograd/")


@dataclass(frozen=True, slots=True)
class Goods:
    """Units, who made those that were once seeded here, and the context of those made here.

    `signers` has, for each unit that is or holds what was seeded here, the keys that had signed it;
    `unsigned` are the keys of units that were left out for them. `live` is the live directory that
    the units lie in; None for directories that a user named.
    """

    scan: Scan
    origins: Mapping[str, Origin]
    context: Components
    signers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unsigned: frozenset[str] = frozenset()
    live: Live | None = None

    def only(self, wanted: Callable[[FoundUnit], bool]) -> Goods:
        """Those of the units that are wanted."""
        units = tuple(unit for unit in self.scan.units if wanted(unit))
        return replace(self, scan=replace(self.scan, units=units))

    def signable(self, keys: frozenset[str]) -> Goods:
        """What these keys (their public halves) may sign: all of it, where there are none.

        A signature says that its owner has compiled something, or was told to sign it. So what was
        brought here is signed by a key only if that key had signed it before.
        """
        foreign = frozenset(unit for unit, signed in self.signers.items() if not keys <= signed)
        mine = self.only(lambda unit: unit.key not in foreign)
        left = {unit.key for unit in self.scan.units} & foreign
        return replace(mine, unsigned=frozenset(left))

    def slim(self) -> Goods:
        """The same without the files that no hit reads."""
        return replace(self, scan=replace(self.scan, units=tuple(map(slim, self.scan.units))))


def from_trees(trees: Trees, context: Components | None = None) -> Goods:
    """What lies in directories and files that a user named."""
    return Goods(scan(trees.folders(), trees.artifacts()), {}, context or Components())


def from_live_directory(environment: str, trust: str | None) -> Goods:
    """What lies in the live directory for an environment and a trust (their digests)."""
    return _live_goods(of_process(environment, trust), (), Components())


@dataclass(frozen=True, slots=True)
class Stock:
    """What a process has compiled or used until now, in its live directory: artifacts, units, and
    its context."""

    artifacts: tuple[Artifact, ...]
    used: frozenset[str]
    context: Components
    live: Live


def take_stock(environment: str, trust: str | None) -> Stock:
    """The stock of this process, to be taken in the thread that compiled: threads differ in their
    settings."""
    from cachesvc.runtime.context import read_context
    from cachesvc.runtime.megacache import capture
    from cachesvc.runtime.used import used_units

    artifacts = capture()
    live = of_process(environment, trust)
    used = used_units(artifacts, live.folder("inductor"))
    return Stock(artifacts, used, read_context(), live)


def from_stock(stock: Stock, model: str, suspects: frozenset[str] = frozenset()) -> Goods:
    """What this process has compiled or used for a model (its digest), without the suspects.

    The live directory may hold more: what other processes compiled, and what was brought for
    another model. A graph that this process neither compiled nor used is left out, and so is what
    was brought under another model and not used.
    """
    from cachesvc.runtime.used import graph_units

    artifacts = tuple(a for a in stock.artifacts if not suspects.intersection(graph_units((a,))))
    goods = _live_goods(stock.live, artifacts, stock.context)
    return goods.only(
        lambda unit: (
            unit.key not in suspects
            and _belongs(unit, goods.origins.get(unit.key), model, stock.used)
        )
    )


def _belongs(unit: FoundUnit, origin: Origin | None, model: str, used: frozenset[str]) -> bool:
    if not used or unit.key in used:
        return True
    if origin is None:
        return not unit.key.startswith(_KEYED)
    return origin.model in (model, ANY_MODEL)


def _live_goods(live: Live, artifacts: tuple[Artifact, ...], context: Components) -> Goods:
    scanned = scan(live_folders(live), artifacts)
    ledger = Ledger.read(live.places.records)
    signers: dict[str, frozenset[str]] = {}
    for unit, keys in _signers(scanned, artifacts, ledger):
        signers[unit] = keys & signers.get(unit, keys)
    return Goods(scanned, _origins(scanned, ledger), context, signers, live=live)


def _signers(
    scanned: Scan, artifacts: Iterable[Artifact], ledger: Ledger
) -> Iterator[tuple[str, frozenset[str]]]:
    """Who had signed the units that were seeded here, also where a unit has grown since; the same
    for artifacts that hold graphs which were, and for graphs that came by loading artifacts."""
    from cachesvc.runtime.used import graph_units, loaded_graph

    brought = {unit: ledger.signers.get(unit, frozenset()) for unit in ledger.origins}
    for artifact in artifacts:
        own = unit_of(artifact.path)
        for graph in graph_units((artifact,)):
            if graph in brought:
                yield own, brought[graph]
    for key, signers in brought.items():
        if loaded := loaded_graph(key):
            yield loaded, signers
    for unit in scanned.units:
        if unit.key in brought:
            yield unit.key, brought[unit.key]


def _origins(scanned: Scan, ledger: Ledger) -> dict[str, Origin]:
    """Who made the units that were seeded here and have not grown since."""
    return {
        unit.key: ledger.origins[unit.key]
        for unit in scanned.units
        if unit.key in ledger.origins and all(file.path in ledger.rows for file in unit.files)
    }
