"""Bringing bundles into the live directory, the short way where nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cachesvc.core.components import Components
from cachesvc.core.errors import TccacheError
from cachesvc.core.report import Transfer
from cachesvc.core.requirement import Requirement
from cachesvc.local.host import read_capabilities
from cachesvc.local.places import Places
from cachesvc.local.receipt import Receipt, read_receipt, receipt_of, write_receipt
from cachesvc.repository.repository import Repository
from cachesvc.start.bundles import Selection
from cachesvc.start.deadline import Deadline
from cachesvc.start.progress import Progress, quiet

if TYPE_CHECKING:
    from cachesvc.start.transfer import Holdings

TIERS = {
    "directories": frozenset({"inductor", "triton"}),
    "megacache": frozenset({"megacache"}),
}
"""What each tier of a warm start brings."""

_LOOSE = (
    "a mega-cache that was pushed under its name alone, or for another model: nobody sees what of"
    " it is used; push it for the model itself"
)


@dataclass(frozen=True, slots=True)
class Brought:
    """What the selected bundles give this process.

    `newest` is the address of the segment written last, None if nothing can be used here; `bundles`
    are those that could be read. `units` are the keys of the tier's units, `aside` of those that
    are left out because they have failed here;
    `artifacts` are the entry paths of the mega-cache's artifacts, where that is the tier;
    `contexts` are those of the processes that compiled, the last one last; `coverage` are the
    signatures of the calls that they made.
    """

    newest: str | None = None
    tier: str | None = None
    bundles: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    has_inductor: bool = False
    artifacts: tuple[str, ...] = ()
    cold_s: float | None = None
    coverage: tuple[str, ...] = ()
    contexts: tuple[Components, ...] = ()
    refused: tuple[str, ...] = ()
    transfer: Transfer = Transfer()

    @property
    def is_usable(self) -> bool:
        """Whether anything of the bundles lies in the live directory now."""
        return self.transfer.present + self.transfer.kept > 0


def bring(
    repository: Repository,
    chosen: Selection,
    places: Places,
    progress: Progress = quiet,
    deadline: Deadline | None = None,
    *,
    directories_only: bool = False,
) -> Brought:
    """Seeds the best tier that the bundles hold; nearly free where all lies in place already.

    The bundle of a neighbour, or of a name alone, gives its directories only: of a mega-cache
    nobody sees what was used. `directories_only` is for whoever cannot load a mega-cache. Raises
    what `holdings` and `seed` raise.
    """
    started = perf_counter()
    receipt = read_receipt(places.records, _scope(chosen), _key(chosen))
    unloaded = directories_only or chosen.is_loose
    if receipt is not None and _is_wanted(receipt, unloaded) and _holds(receipt):
        return _from_facts(receipt.facts, perf_counter() - started)
    # Only the long way loads what unpacks and seeds.
    from cachesvc.start.transfer import holdings, seed

    found = holdings(repository, chosen.bundles, foreign=chosen.foreign)
    if not found.units or (unloaded and _tier(found) == "megacache"):
        refused = tuple(item.reason for item in found.refused)
        loose = (_LOOSE,) if found.units and chosen.is_loose else ()
        return Brought(refused=refused, transfer=Transfer(left_out=(*found.left_out, *loose)))
    sections = TIERS[_tier(found)]
    transfer = seed(
        repository,
        found,
        places,
        wanted=lambda unit: unit.section in sections,
        progress=progress,
        deadline=deadline,
    )
    brought = brought_of(found, transfer, places)
    remember(places, chosen, found, brought)
    return brought


def remember(places: Places, chosen: Selection, found: Holdings, brought: Brought) -> None:
    """Writes the receipt for the next start, unless it would have something to tell again."""
    if chosen.foreign or brought.refused or brought.transfer.kept or brought.transfer.set_aside:
        return
    sections = TIERS[_tier(found)]
    units = [unit for unit in found.units.values() if unit.section in sections]
    placed = [places.locate(entry.path) for unit in units for entry in unit.entries]
    facts = _to_facts(brought, found)
    # Without a receipt the next start goes the long way and comes to the same end.
    with suppress(OSError, TccacheError):
        receipt = receipt_of(facts, [file for file in placed if file is not None])
        write_receipt(places.records, _scope(chosen), _key(chosen), receipt)


def _scope(chosen: Selection) -> list[str]:
    return [bundle.address.prefix for bundle in chosen.bundles]


def _key(chosen: Selection) -> list[list[str]]:
    return [[segment.name for segment in bundle.segments] for bundle in chosen.bundles]


def _tier(found: Holdings) -> str:
    """The best tier that the units allow; a mega-cache holds nothing that directories lack."""
    sections = {unit.section for unit in found.units.values()}
    return "directories" if sections & TIERS["directories"] else "megacache"


def brought_of(found: Holdings, transfer: Transfer, places: Places) -> Brought:
    """What was brought, once it is seeded."""
    from cachesvc.local.quarantine import is_set_aside, read_quarantine

    quarantine = read_quarantine(places.records)
    newest = found.newest
    tier = _tier(found)
    of_tier = [unit for unit in found.units.values() if unit.section in TIERS[tier]]
    aside = {unit.key for unit in of_tier if is_set_aside(unit, quarantine)}
    units = [unit for unit in of_tier if unit.key not in aside]
    mega = [unit for unit in units if unit.section == "megacache"]
    return Brought(
        newest=str(newest.address) if newest else None,
        tier=tier,
        bundles=found.addresses,
        units=tuple(unit.key for unit in units),
        aside=tuple(sorted(aside)),
        has_inductor=any(unit.section == "inductor" for unit in found.units.values()),
        artifacts=tuple(entry.path for unit in mega for entry in unit.entries),
        cold_s=newest.proof.cold_s if newest and newest.proof else None,
        coverage=tuple(sorted({text for s in found.segments for text in s.manifest.coverage})),
        contexts=_contexts(found),
        refused=tuple(item.reason for item in found.refused),
        transfer=transfer,
    )


def _contexts(found: Holdings) -> tuple[Components, ...]:
    origins = (unit.origin for unit in found.units.values() if unit.origin.context)
    by_time = sorted(origins, key=lambda origin: origin.created)
    return tuple(dict.fromkeys(origin.context for origin in by_time))


def _to_facts(brought: Brought, found: Holdings) -> dict[str, Any]:
    needs = sorted({need for unit in found.units.values() for need in unit.requires})
    return {
        "newest": brought.newest,
        "tier": brought.tier,
        "has_inductor": brought.has_inductor,
        "artifacts": brought.artifacts,
        "cold_s": brought.cold_s,
        "coverage": brought.coverage,
        "contexts": [dict(context) for context in brought.contexts],
        "left_out": brought.transfer.left_out,
        "bundles": brought.bundles,
        "units": brought.units,
        "needs": [[need.kind, need.value] for need in needs],
    }


def _from_facts(facts: Mapping[str, Any], seconds: float) -> Brought:
    return Brought(
        newest=facts["newest"],
        tier=facts["tier"],
        bundles=tuple(facts["bundles"]),
        units=tuple(facts["units"]),
        has_inductor=facts["has_inductor"],
        artifacts=tuple(facts["artifacts"]),
        cold_s=facts["cold_s"],
        coverage=tuple(facts["coverage"]),
        contexts=tuple(Components.of(context) for context in facts["contexts"]),
        transfer=Transfer(
            in_place=len(facts["units"]), left_out=tuple(facts["left_out"]), pull_s=seconds
        ),
    )


def _is_wanted(receipt: Receipt, unloaded: bool) -> bool:
    return not (unloaded and receipt.facts["tier"] == "megacache")


def _holds(receipt: Receipt) -> bool:
    """Whether the files lie there, and this host still is one that can use them."""
    needs = [Requirement(kind, value) for kind, value in receipt.facts["needs"]]
    fits = not needs or not read_capabilities({need.kind for need in needs}).unmet(needs)
    return fits and receipt.in_place()
