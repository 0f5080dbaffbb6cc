"""Union of segments, by whole units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cachesvc.core.manifest import Manifest, Unit, resolve


@dataclass(frozen=True, slots=True)
class Segment:
    """A manifest under its name: the SHA-256 of the manifest's bytes."""

    name: str
    manifest: Manifest

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units, each with the segment that first held it spelled out."""
        return tuple(resolve(unit, self.name) for unit in self.manifest.units)


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
    """For each key the unit of the greatest rank.

    Commutative, associative and idempotent: a total order decides, whatever comes first.
    """
    best: dict[str, Unit] = {}
    for unit in units:
        held = best.get(unit.key)
        if held is None or _order(unit) > _order(held):
            best[unit.key] = unit
    return best


def _order(unit: Unit) -> tuple[tuple[int, str, str], tuple[object, ...]]:
    # The entries decide between units that claim the same origin with different bytes, which
    # honest writers never make; without them the order of reading would.
    return (unit.rank, unit.entries)


def covers(held: Unit | None, files: int) -> bool:
    """Whether `held` makes it needless to publish a unit of the same key with so many files.

    Compiling the same thing twice gives other file names and other bytes, so equal keys with as
    many files count as the same thing.
    """
    return held is not None and len(held.entries) >= files


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
