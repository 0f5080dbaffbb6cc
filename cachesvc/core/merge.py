"""Union of segments, by whole units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cachesvc.core.kept import kept
from cachesvc.core.manifest import Manifest, Unit, resolve
from cachesvc.core.paths import folders_of


@dataclass(frozen=True)
class Segment:
    """A manifest under its name: the SHA-256 of the manifest's bytes.

    `signers` are the public keys, in hex, whose signatures of these bytes are right, where anybody
    has looked. Of what was carried into this one nothing is used that came from the segments in
    `revoked`, or was first published before `since`, a time as manifests write it.
    """

    name: str
    manifest: Manifest
    signers: frozenset[str] = frozenset()
    revoked: frozenset[str] = frozenset()
    since: str = ""

    @kept
    def units(self) -> tuple[Unit, ...]:
        """The units that may be used, each with the segment that first held it spelled out."""
        units = (resolve(unit, self.name) for unit in self.manifest.units)
        return tuple(
            unit
            for unit in units
            if unit.origin.segment not in self.revoked and unit.origin.created >= self.since
        )


def live(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments that no other one of them supersedes, ordered by (time, name).

    `supersedes` is transitive as written, so one set difference is enough. A segment cannot
    supersede itself, nor two each other: a name is a digest of what it names.
    """
    known = tuple(segments)
    gone = {name for segment in known for name in segment.manifest.supersedes}
    alive = (segment for segment in known if segment.name not in gone)
    return tuple(sorted(alive, key=lambda segment: (segment.manifest.created, segment.name)))


def merge(units: Iterable[Unit]) -> dict[str, Unit]:
    """For each key the unit of the greatest rank; all of them can lie in one tree.

    Commutative, associative and idempotent: a total order decides, whatever comes first. Only
    where a file of one unit is a file or a folder of another, as after a change of a directory's
    layout, the lesser one is left out of this union, and a wider union may hold it again.
    """
    best: dict[str, Unit] = {}
    for unit in units:
        held = best.get(unit.key)
        if held is None or _order(unit) > _order(held):
            best[unit.key] = unit
    return best if _fit_together(best.values()) else _fitting(best.values())


def _order(unit: Unit) -> tuple[object, ...]:
    # The rest decides between units that claim the same origin with different contents, which
    # honest writers never make; without it the order of reading would.
    origin = unit.origin
    rest = (origin.model, origin.context.items_, origin.extra)
    return (unit.rank, unit.entries, unit.requires, *rest, unit.extra)


def _fit_together(units: Iterable[Unit]) -> bool:
    paths = [entry.path for unit in units for entry in unit.entries]
    unique = set(paths)
    return len(unique) == len(paths) and not unique & folders_of(unique)


def _fitting(units: Iterable[Unit]) -> dict[str, Unit]:
    """The units without those that cannot lie beside a greater one."""
    fitting: dict[str, Unit] = {}
    occupied = Occupied()
    for unit in sorted(units, key=_order, reverse=True):
        paths = [entry.path for entry in unit.entries]
        if not occupied.clashes(paths):
            occupied.add(paths)
            fitting[unit.key] = unit
    return fitting


class Occupied:
    """The files and folders of a tree in the making."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, paths: Iterable[str]) -> None:
        paths = set(paths)
        self._files |= paths
        self._folders |= folders_of(paths)

    def clashes(self, paths: Iterable[str]) -> bool:
        """Whether one of the paths is taken, is a folder here, or would need a file to be one."""
        paths = set(paths)
        taken = self._files | self._folders
        return not taken.isdisjoint(paths) or not self._files.isdisjoint(folders_of(paths))


def covers(held: Unit | None, files: int) -> bool:
    """Whether `held` makes it needless to publish a unit of the same key with so many files.

    Compiling the same thing twice gives other file names and other bytes, so equal keys with as
    many files count as the same thing.
    """
    return held is not None and len(held.entries) >= files


def replaces(units: Mapping[str, Unit], segment: Segment) -> bool:
    """Whether every host finds in `units`, by key, what it could use of the segment."""
    return all(
        covers(held := units.get(unit.key), len(unit.entries))
        and held is not None
        and set(held.requires) <= set(unit.requires)
        for unit in segment.manifest.units
    )


@dataclass(frozen=True, slots=True)
class Cover:
    """Which segment's pack gives which units."""

    parts: tuple[tuple[Segment, tuple[Unit, ...]], ...]

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(unit for _, units in self.parts for unit in units)


def fewest_packs(segments: Sequence[Segment], wanted: Mapping[str, Unit]) -> Cover:
    """A choice of packs that holds every wanted unit, each taken whole from one pack.

    Greedy by the number of units still missing, then smaller packs: exact where one pack holds
    all, which is the state after every merge.
    """
    offers = [(segment, _offer(segment, wanted)) for segment in segments]
    missing = dict(wanted)
    parts: list[tuple[Segment, tuple[Unit, ...]]] = []
    while missing and offers:
        segment, keys = max(
            offers, key=lambda offer: (len(offer[1] & missing.keys()), -_weight(offer[0]))
        )
        taken = keys & missing.keys()
        if not taken:
            break
        parts.append((segment, tuple(missing.pop(key) for key in sorted(taken))))
    return Cover(tuple(parts))


def _offer(segment: Segment, wanted: Mapping[str, Unit]) -> frozenset[str]:
    """The keys of the wanted units that this segment holds in just the wanted version."""
    return frozenset(
        unit.key
        for unit in segment.units
        if unit.key in wanted and wanted[unit.key].entries == unit.entries
    )


def _weight(segment: Segment) -> int:
    return segment.manifest.pack.size
