"""What a store is rid of: a plan made from listings and readings, and then carried out.

The order is the protocol. Of each segment the manifest goes first, so that no reader finds one
without its pack for long; of each bundle the oldest segment goes first, so that what is left after
a crash is what was live, and a crash leaves at most packs without a manifest, which the next run
deletes. What the janitor does not trust, or cannot read, counts for nothing: it is not deleted for
being superseded, and nothing is deleted for being superseded by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cachesvc.core.address import Address
from cachesvc.core.errors import StoreError
from cachesvc.core.merge import Segment, live, replaces
from cachesvc.repository.grace import Grace
from cachesvc.repository.listing import Bundle, Listed
from cachesvc.repository.policy import Candidate, Policy, apply
from cachesvc.repository.repository import Reading
from cachesvc.store.contract import Stat, Store

Cause = Literal["superseded", "orphan", "untrusted", "policy", "damaged"]


@dataclass(frozen=True, slots=True)
class Deletion:
    """Objects of one segment that go together, in this order."""

    address: Address
    segment: str
    cause: Cause
    reason: str
    objects: tuple[Stat, ...]

    @property
    def bytes(self) -> int:
        return sum(stat.size for stat in self.objects)


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that stays though it might be expected to go; `segment` is None for a bundle."""

    address: Address
    segment: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judged:
    """One bundle: what goes of it whatever policy says, and what policy asks about it.

    `untrusted` are its segments that nobody who is trusted has signed.
    """

    candidate: Candidate
    deletions: tuple[Deletion, ...]
    kept: tuple[Kept, ...]
    untrusted: tuple[Deletion, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes, in this order, and what stays that might be expected to go."""

    deletions: tuple[Deletion, ...] = ()
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was deleted, and the failure that ended it, if one did."""

    deleted: tuple[Deletion, ...]
    failure: StoreError | None = None

    @property
    def bytes(self) -> int:
        return sum(deletion.bytes for deletion in self.deleted)


def judge(bundle: Bundle, reading: Reading, grace: Grace) -> Judged:
    """What goes of a bundle, given a reading of all its segments and of who signed them."""
    found = (*_superseded(bundle, reading.segments, grace), *orphans(bundle, grace))
    deletions = tuple(item for item in found if isinstance(item, Deletion))
    kept = tuple(item for item in found if isinstance(item, Kept))
    refused = (Kept(bundle.address, item.segment, item.reason) for item in reading.refused)
    alive = live(reading.segments)
    counted = _accepted(bundle, reading) if alive else bundle
    candidate = Candidate(
        bundle=bundle,
        bytes=_bytes_left(counted, deletions),
        trusted=bool(alive),
        counted=counted,
        torch=next((segment.manifest.environment.get("torch") for segment in alive), None),
        tags=frozenset(tag for segment in alive for tag in segment.manifest.tags),
    )
    return Judged(
        candidate, deletions, (*kept, *refused), tuple(_untrusted(bundle, reading, grace))
    )


def _bytes_left(counted: Bundle, deletions: Iterable[Deletion]) -> int:
    """What the part that counts holds afterwards: it need not hold all that goes."""
    gone = {stat.key for deletion in deletions for stat in deletion.objects}
    return sum(stat.size for stat in counted.objects if stat.key not in gone)


def _accepted(bundle: Bundle, reading: Reading) -> Bundle:
    """The bundle without the objects of segments that are refused, or are none yet."""
    accepted = {segment.name for segment in reading.segments}
    return replace(
        bundle, segments=tuple(s for s in bundle.segments if s.name in accepted), orphans=()
    )


def plan(judged: Sequence[Judged], policy: Policy, grace: Grace) -> Plan:
    """What goes of a store, all of whose bundles were judged."""
    candidates = [item.candidate for item in judged]
    verdicts = apply(policy, candidates, grace)
    deletions: list[Deletion] = []
    kept = [Kept(address, None, reason) for address, reason in verdicts.kept.items()]
    for item in judged:
        address = item.candidate.bundle.address
        if reason := verdicts.gone.get(address):
            deletions += _whole(item.candidate.bundle, f"the bundle {reason}")
        else:
            untrusted = item.untrusted if policy.untrusted else ()
            going = {deletion.segment for deletion in untrusted}
            deletions += (*untrusted, *item.deletions)
            kept += (known for known in item.kept if known.segment not in going)
    return Plan(tuple(deletions), tuple(kept))


def within(plan: Plan, shown: Iterable[Deletion]) -> Plan:
    """What of the plan was shown before: what somebody agreed to, or less."""
    agreed = {stat.key for deletion in shown for stat in deletion.objects}
    parts = (
        replace(deletion, objects=tuple(s for s in deletion.objects if s.key in agreed))
        for deletion in plan.deletions
    )
    return replace(plan, deletions=tuple(part for part in parts if part.objects))


def carry_out(plan: Plan, store: Store, progress: Callable[[str], None]) -> Outcome:
    """Deletes what the plan says, in its order; ends at the first failure of the store."""
    deleted: list[Deletion] = []
    for deletion in plan.deletions:
        progress(f"delete {deletion.address} {deletion.segment[:12]}")
        gone, failure = _delete(deletion, store)
        if gone.objects:
            deleted.append(gone)
        if failure is not None:
            return Outcome(tuple(deleted), failure)
    return Outcome(tuple(deleted))


def _delete(deletion: Deletion, store: Store) -> tuple[Deletion, StoreError | None]:
    """What was deleted of it, and what ended that before all was."""
    for number, stat in enumerate(deletion.objects):
        try:
            store.delete(stat.key)
        except StoreError as error:
            return replace(deletion, objects=deletion.objects[:number]), error
    return deletion, None


def _superseded(
    bundle: Bundle, segments: Sequence[Segment], grace: Grace
) -> Iterator[Deletion | Kept]:
    """The segments that another one names as superseded, oldest first."""
    listed = {item.name: item for item in bundle.segments}
    known = {segment.name: segment for segment in segments}
    successors: dict[str, list[Segment]] = {}
    for segment in segments:
        for name in segment.manifest.supersedes:
            successors.setdefault(name, []).append(segment)
    for name in _oldest_first(listed.values()):
        if name in known and name in successors:
            newest_first = sorted(successors[name], key=_created, reverse=True)
            yield _fate(known[name], newest_first, listed, grace)


def _created(segment: Segment) -> tuple[str, str]:
    return (segment.manifest.created, segment.name)


def _fate(
    segment: Segment, successors: Sequence[Segment], listed: Mapping[str, Listed], grace: Grace
) -> Deletion | Kept:
    """Whether a segment goes: it does if one of its successors really takes its place."""
    address, name = segment.manifest.address, segment.name
    first = None
    for successor in successors:
        issue = _issue(segment, successor, listed[successor.name], grace)
        if issue is None:
            reason = f"superseded by {successor.name[:12]}"
            return Deletion(address, name, "superseded", reason, objects_of(listed[name]))
        first = first or f"its successor {successor.name[:12]} {issue}"
    return Kept(address, name, first or "it has no successor")


def _issue(segment: Segment, successor: Segment, listed: Listed, grace: Grace) -> str | None:
    """Why a segment must stay beside the one that names it as superseded, or None."""
    if not segment.signers <= successor.signers:
        return "is not signed by all who signed it"
    if not grace.is_over(listed.manifest.modified):
        return "is younger than the grace time"
    if listed.pack is None or listed.pack.size != successor.manifest.pack.size:
        return "lacks its pack, or has another one"
    units = {unit.key: unit for unit in successor.manifest.units}
    return None if replaces(units, segment) else "does not hold all that it holds"


def orphans(bundle: Bundle, grace: Grace) -> Iterator[Deletion | Kept]:
    """Packs and signatures that no manifest names: a push left them, or is about to name them."""
    for stat in bundle.orphans:
        segment = stat.key.removeprefix(bundle.address.prefix).partition(".")[0]
        if grace.is_over(stat.modified):
            reason = "no manifest names it"
            yield Deletion(bundle.address, segment, "orphan", reason, (stat,))
        else:
            reason = "no manifest names it yet: a push may be at work"
            yield Kept(bundle.address, segment, reason)


def _untrusted(bundle: Bundle, reading: Reading, grace: Grace) -> Iterator[Deletion]:
    """The segments in which nothing is wrong but that nobody who is trusted has signed them."""
    listed = {item.name: item for item in bundle.segments}
    for refused in reading.refused:
        item = listed[refused.segment]
        if refused.untrusted and grace.is_over(item.manifest.modified):
            yield Deletion(bundle.address, item.name, "untrusted", refused.reason, objects_of(item))


def _whole(bundle: Bundle, reason: str) -> Iterator[Deletion]:
    """All of a bundle, what is live at the end."""
    listed = {item.name: item for item in bundle.segments}
    for name in _oldest_first(listed.values()):
        yield Deletion(bundle.address, name, "policy", reason, objects_of(listed[name]))
    for stat in bundle.orphans:
        segment = stat.key.removeprefix(bundle.address.prefix).partition(".")[0]
        yield Deletion(bundle.address, segment, "policy", reason, (stat,))


def _oldest_first(segments: Iterable[Listed]) -> list[str]:
    by_age = sorted(segments, key=lambda item: (item.manifest.modified, item.name))
    return [item.name for item in by_age]


def objects_of(listed: Listed) -> tuple[Stat, ...]:
    """All of a segment, in the order in which it is deleted: the manifest first."""
    parts = (listed.manifest, listed.signature, listed.pack)
    return tuple(stat for stat in parts if stat is not None)
