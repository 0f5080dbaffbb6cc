"""From a store's bundles into directories: read, choose, bring, verify, seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Manifest, Unit
from cachesvc.core.merge import Segment, fewest_packs, merge
from cachesvc.core.report import Transfer
from cachesvc.core.requirement import Capabilities
from cachesvc.local.filled_for import check_trust, fill_for
from cachesvc.local.host import read_capabilities
from cachesvc.local.lock import is_held
from cachesvc.local.places import Places
from cachesvc.local.seed import Seeder
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import Reading, Refused, Repository
from cachesvc.repository.scratch import scratch
from cachesvc.start.deadline import Deadline
from cachesvc.start.progress import Progress, quiet


@dataclass(frozen=True, slots=True)
class Holdings:
    """What some bundles hold for this host: the union of their live segments, by whole units."""

    readings: tuple[Reading, ...]
    units: dict[str, Unit]
    left_out: tuple[str, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(segment for reading in self.readings for segment in reading.segments)

    @property
    def refused(self) -> tuple[Refused, ...]:
        return tuple(refused for reading in self.readings for refused in reading.refused)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Those of the bundles that could be read."""
        return tuple(sorted({str(item.address) for item in self.readings if item.segments}))

    @property
    def signers(self) -> dict[str, frozenset[str]]:
        """The keys that have signed each unit, as far as anybody has looked."""
        signed: dict[str, frozenset[str]] = {}
        for segment in self.segments:
            for unit in segment.units if segment.signers else ():
                best = self.units.get(unit.key)
                if best is not None and best.entries == unit.entries:
                    signed[unit.key] = signed.get(unit.key, frozenset()) | segment.signers
        return signed

    def signed_by(self, keys: frozenset[str]) -> dict[str, Unit]:
        """The units, by key, that all these keys have signed."""
        signers = self.signers if keys else {}
        return {
            key: unit for key, unit in self.units.items() if keys <= signers.get(key, frozenset())
        }

    @property
    def newest(self) -> Manifest | None:
        """The manifest of the segment that was written last."""
        manifests = (segment.manifest for segment in self.segments)
        return max(manifests, key=lambda manifest: manifest.created, default=None)


def holdings(
    repository: Repository, bundles: Iterable[Bundle], *, foreign: bool, signed: bool = False
) -> Holdings:
    """Reads the bundles' manifests and sorts out what this host cannot use.

    `foreign` bundles are of another machine and are only moved, so nothing is left out. With
    `signed` it is found out who has signed them, also where nobody asks for that.
    """
    readings = tuple(repository.read(bundle, signed=signed) for bundle in bundles)
    units = [unit for reading in readings for segment in reading.segments for unit in segment.units]
    host = capabilities(units, foreign=foreign)
    fitting: list[Unit] = []
    unfit: dict[str, list[str]] = {}
    for unit in units:
        unmet = host.unmet(unit.requires) if unit.requires else ()
        if unmet:
            unfit.setdefault(str(unmet[0]), []).append(unit.key)
        else:
            fitting.append(unit)
    best = merge(fitting)
    return Holdings(readings, best, tuple(_left_out(unfit, best)))


def _left_out(unfit: dict[str, list[str]], best: dict[str, Unit]) -> Iterator[str]:
    """A sentence for each unmet requirement, about the units that nothing else stands in for."""
    for unmet, keys in sorted(unfit.items()):
        missing = sorted({key for key in keys if key not in best})
        if missing:
            more = f" and {len(missing) - 1} more units" if len(missing) > 1 else ""
            yield f"{missing[0]}{more}: {unmet}"


def capabilities(units: Iterable[Unit], *, foreign: bool) -> Capabilities:
    """This host's answers to just the kinds of requirement that these units have."""
    if foreign:
        return Capabilities(unchecked=True)
    return read_capabilities({need.kind for unit in units for need in unit.requires})


def seed(
    repository: Repository,
    found: Holdings,
    places: Places,
    *,
    wanted: Callable[[Unit], bool] = lambda unit: True,
    progress: Progress = quiet,
    deadline: Deadline | None = None,
) -> Transfer:
    """Brings the units that are not in place yet, and seeds them.

    One process of a node does it while the others wait for the lock, as long as it gets on, and
    then find everything in place; once its time is up it lets go of the lock, even if the store
    hangs. Raises, and leaves the directories as they were: IntegrityError if any pack is not what
    its manifest says, DeadlinePassed if the time is up before all lies ready.
    """
    deadline = deadline or Deadline()
    started = time.perf_counter()
    deadline.check()
    if is_held(places):
        progress(f"wait for the process that seeds {places.root}")
    with Seeder(places) as seeder, deadline.holding(seeder.let_go):
        check_trust(places, repository.trust.digest)
        plan = seeder.plan(unit for unit in found.units.values() if wanted(unit))
        cover = fewest_packs(found.segments, {unit.key: unit for unit in plan.missing})
        if len(cover.units) < len(plan.missing):
            raise IntegrityError(
                "a unit that a manifest lists is in no pack: push the bundle again"
            )
        size = sum(segment.manifest.pack.size for segment, _ in cover.parts)
        for segment, units in cover.parts:
            deadline.check()
            progress(f"pull {segment.name[:12]} ({segment.manifest.pack.size / 1e6:.1f} MB)")
            _stage(repository, segment, units, seeder)
        pulled = time.perf_counter()
        progress(f"seed {len(plan.missing)} units")
        seeder.flush()
        with deadline.commit():
            fill_for(places, repository.trust.digest)
            seeder.commit(plan.missing, plan.in_place, found.signers)
    return Transfer(
        packs=len(cover.parts),
        bytes=size,
        seeded=len(plan.missing),
        in_place=len(plan.in_place),
        kept=len(plan.kept),
        repaired=len(plan.damaged),
        set_aside=tuple(map(str, plan.set_aside)),
        left_out=found.left_out,
        pull_s=pulled - started,
        seed_s=time.perf_counter() - pulled,
    )


def _stage(repository: Repository, segment: Segment, units: Sequence[Unit], seeder: Seeder) -> None:
    entries = [entry for unit in units for entry in unit.entries]
    with scratch("pull") as folder:
        pack = folder / "pack"
        repository.fetch(segment, pack, seeder.gets_on)
        for entry, stream in repository.entries(segment, pack, entries):
            seeder.stage(entry, stream)
