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
from cachesvc.core.tier import ANY, AOT, DIRECTORIES, MEGACACHE, TIERS, Allowed
from cachesvc.core.trust import Trust
from cachesvc.local.host import read_capabilities
from cachesvc.local.places import Places
from cachesvc.local.receipt import Receipt, read_receipt, receipt_of, write_receipt
from cachesvc.repository.repository import Repository
from cachesvc.start.bundles import Selection
from cachesvc.start.deadline import Deadline
from cachesvc.start.progress import Progress, quiet

if TYPE_CHECKING:
    from cachesvc.start.transfer import Holdings

SECTIONS: Mapping[str, frozenset[str]] = {
    AOT: frozenset({"aot"}),
    DIRECTORIES: frozenset({"inductor", "triton"}),
    MEGACACHE: frozenset({"megacache"}),
}
"""What each tier of a warm start brings."""

DIRECTORIES_ONLY = Allowed((DIRECTORIES,), DIRECTORIES)
"""What another model's bundle gives, and what a program that nobody arms can use."""

_LOOSE = (
    "a mega-cache that was pushed under its name alone, or for another model: nobody sees what of"
    " it is used; push it for the model itself"
)


@dataclass(frozen=True, slots=True)
class Brought:
    """What the selected bundles give this process.

    `newest` is the address of the segment written last, None if nothing can be used here; `bundles`
    are those that could be read. `tier` is the one that was brought, `held` are all that the units
    allow. `units` are the keys of the tier's units, `aside` of those that
    are left out because they have failed here;
    `artifacts` are the entry paths of the mega-cache's artifacts, where that is the tier;
    `contexts` are those of the processes that compiled, the last one last; `coverage` are the
    signatures of the calls that they made.
    """

    newest: str | None = None
    tier: str | None = None
    held: tuple[str, ...] = ()
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
    tiers: Allowed = ANY,
) -> Brought:
    """Seeds the best of these tiers that the bundles hold; nearly free where all lies in place.

    The bundle of a neighbour, or of a name alone, gives its directories only: of a mega-cache
    nobody sees what was used, and functions are of one model. Raises what `holdings` and `seed`
    raise.
    """
    started = perf_counter()
    possible = DIRECTORIES_ONLY if chosen.is_loose else tiers
    for tier in reversed(TIERS) if repository.trust.max_age_s is None else ():
        receipt = read_receipt(places.records, _scope(chosen, tier), _key(chosen, repository.trust))
        if receipt is not None and _is_wanted(receipt, tier, possible) and _holds(receipt):
            return _from_facts(receipt.facts, perf_counter() - started)
    # Only the long way loads what unpacks and seeds.
    from cachesvc.start.transfer import holdings, seed

    found = holdings(repository, chosen.bundles, foreign=chosen.foreign)
    best = possible.best(held_tiers(found))
    if best is None:
        refused = tuple(item.reason for item in found.refused)
        unused = (_unused(chosen, tiers),) if found.units else ()
        return Brought(refused=refused, transfer=Transfer(left_out=(*found.left_out, *unused)))
    sections = SECTIONS[best]
    transfer = seed(
        repository,
        found,
        places,
        wanted=lambda unit: unit.section in sections,
        progress=progress,
        deadline=deadline,
    )
    brought = brought_of(found, transfer, places, best)
    remember(repository, places, chosen, found, brought)
    return brought


def _unused(chosen: Selection, tiers: Allowed) -> str:
    """Why nothing is used of bundles that hold something."""
    if chosen.is_loose and DIRECTORIES in tiers:
        return _LOOSE
    return f"the tier is {tiers.said}, and the bundle holds no such units that may be used here"


def remember(
    repository: Repository, places: Places, chosen: Selection, found: Holdings, brought: Brought
) -> None:
    """Writes the receipt for the next start, unless it would have something to look at again."""
    unsettled = repository.trust.max_age_s is not None or _is_damaged(found)
    if chosen.foreign or unsettled or brought.transfer.kept or brought.transfer.set_aside:
        return
    sections = SECTIONS[str(brought.tier)]
    units = [unit for unit in found.units.values() if unit.section in sections]
    placed = [places.locate(entry.path) for unit in units for entry in unit.entries]
    facts = _to_facts(brought, found)
    # Without a receipt the next start goes the long way and comes to the same end.
    with suppress(OSError, TccacheError):
        receipt = receipt_of(facts, [file for file in placed if file is not None])
        key = _key(chosen, repository.trust)
        write_receipt(places.records, _scope(chosen, str(brought.tier)), key, receipt)


def _is_damaged(found: Holdings) -> bool:
    """Whether a segment was refused for more than whose it is, which the next start finds too."""
    return any(not refused.untrusted for refused in found.refused)


def _scope(chosen: Selection, tier: str) -> list[str]:
    return [tier, *(bundle.address.prefix for bundle in chosen.bundles)]


def _key(chosen: Selection, trust: Trust) -> list[object]:
    """What must be equal for a receipt to hold: the segments, and what was asked of them."""
    segments = [[segment.name for segment in bundle.segments] for bundle in chosen.bundles]
    return [*segments, *([] if trust.digest is None else [trust.digest])]


def held_tiers(found: Holdings) -> tuple[str, ...]:
    """The tiers that the units allow, the better ones last."""
    sections = {unit.section for unit in found.units.values()}
    return tuple(tier for tier in TIERS if sections & SECTIONS[tier])


def brought_of(found: Holdings, transfer: Transfer, places: Places, tier: str) -> Brought:
    """What was brought of a tier, once it is seeded."""
    from cachesvc.local.quarantine import is_set_aside, read_quarantine

    quarantine = read_quarantine(places.records)
    newest = found.newest
    of_tier = [unit for unit in found.units.values() if unit.section in SECTIONS[tier]]
    aside = {unit.key for unit in of_tier if is_set_aside(unit, quarantine)}
    units = [unit for unit in of_tier if unit.key not in aside]
    mega = [unit for unit in units if unit.section == "megacache"]
    return Brought(
        newest=str(newest.address) if newest else None,
        tier=tier,
        held=held_tiers(found),
        bundles=found.addresses,
        units=tuple(unit.key for unit in units),
        aside=tuple(sorted(aside)),
        has_inductor=any(unit.section == "inductor" for unit in of_tier),
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
        "held": brought.held,
        "has_inductor": brought.has_inductor,
        "artifacts": brought.artifacts,
        "cold_s": brought.cold_s,
        "coverage": brought.coverage,
        "contexts": [dict(context) for context in brought.contexts],
        "left_out": brought.transfer.left_out,
        "bundles": brought.bundles,
        "units": brought.units,
        "refused": brought.refused,
        "needs": [[need.kind, need.value] for need in needs],
    }


def _from_facts(facts: Mapping[str, Any], seconds: float) -> Brought:
    return Brought(
        newest=facts["newest"],
        tier=facts["tier"],
        held=tuple(facts["held"]),
        bundles=tuple(facts["bundles"]),
        units=tuple(facts["units"]),
        has_inductor=facts["has_inductor"],
        artifacts=tuple(facts["artifacts"]),
        cold_s=facts["cold_s"],
        coverage=tuple(facts["coverage"]),
        contexts=tuple(Components.of(context) for context in facts["contexts"]),
        refused=tuple(facts["refused"]),
        transfer=Transfer(
            in_place=len(facts["units"]), left_out=tuple(facts["left_out"]), pull_s=seconds
        ),
    )


def _is_wanted(receipt: Receipt, tier: str, tiers: Allowed) -> bool:
    """Whether a receipt of this tier is of the best one that may be taken."""
    return tiers.best(receipt.facts.get("held", ())) == tier


def _holds(receipt: Receipt) -> bool:
    """Whether the files lie there, and this host still is one that can use them."""
    needs = [Requirement(kind, value) for kind, value in receipt.facts["needs"]]
    fits = not needs or not read_capabilities({need.kind for need in needs}).unmet(needs)
    return fits and receipt.in_place()
