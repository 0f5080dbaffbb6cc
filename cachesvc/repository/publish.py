"""Publication: a push adds one segment, or nothing.

The order is the protocol: the pack, then the signature (if signed), then the manifest. The
manifest's name is the digest of its bytes and these name the pack's digest, so a writer that is
killed leaves at most a pack that no reader looks at. Nobody locks: two pushers at once leave two
live segments, readers take the union, the next push merges.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from time import monotonic

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError, StoreError, TccacheError
from cachesvc.core.fields import Extra
from cachesvc.core.manifest import Entry, Manifest, Origin, Pack, Unit
from cachesvc.core.merge import Occupied, Segment, covers, merge, replaces
from cachesvc.core.proof import Proof
from cachesvc.core.proof import carried as carried_proof
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.repository.grace import PUSH_S
from cachesvc.repository.listing import MANIFEST, PACK, SIGNATURE, object_key
from cachesvc.repository.pack import Source, write_pack
from cachesvc.repository.repository import MAX_MANIFEST_BYTES, Reading, Repository
from cachesvc.repository.scratch import scratch
from cachesvc.repository.spool import Damaged, spooled
from cachesvc.store.contract import Store

_SPLIT = "publish the directories under several names"

MERGE_LIMIT_BYTES = 256 << 20
"""How many bytes of packs a push brings here, at most, to merge them into its own."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A unit to be published: its files, what it needs of a host, who made it."""

    key: str
    sources: tuple[Source, ...]
    origin: Origin
    requires: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """What a push wrote. `segment` is None if the store had everything already.

    `warnings` name the segments that are damaged, which stay beside it.
    """

    address: Address
    segment: str | None
    added: int = 0
    carried: int = 0
    pack_bytes: int = 0
    unpacked_bytes: int = 0
    superseded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What a manifest says beside its units."""

    address: Address
    environment: Components
    model: Components
    created: str
    nonce: str
    producer: Components = Components()
    coverage: tuple[str, ...] = ()
    proof: Proof | None = None
    tags: tuple[str, ...] = ()


def held_units(
    reading: Reading, host: Capabilities, signing: frozenset[str] = frozenset()
) -> dict[str, Unit]:
    """What the live segments offer to hosts like this one, by key.

    A stored unit that this host cannot use does not count: another ISA wrote it. Where keys sign
    (their public halves), neither does one that they have not signed: who trusts them lacks it.
    """
    signed = (segment for segment in reading.segments if signing <= segment.signers)
    return merge(_fitting(signed, host))


def publish(
    repository: Repository,
    facts: Facts,
    reading: Reading,
    drafts: Sequence[Draft],
    host: Capabilities,
) -> Publication:
    """Writes one segment with these drafts and, where that is cheap, all that is live already.

    Drafts that the live segments cover are left out; nothing is written if all of them are. Some
    segments stay beside: see `_absorbed`; so do damaged ones, of which a warning is given. The
    repository's keys sign the segment. Raises TccacheError if there is nothing to publish (a bundle
    is never empty), IntegrityError if readers would refuse the segment, PackMissing if the bundle
    is not any more what was read; then, as after any error, no reader sees anything new.
    """
    if not drafts:
        raise TccacheError(
            f"nothing to publish under {facts.address}: no unit was found; compile the model first,"
            " or name the directories that hold its cache"
        )
    held = held_units(reading, host, repository.signing)
    fresh = [d for d in drafts if not covers(held.get(d.key), len(d.sources))]
    if not fresh:
        return Publication(facts.address, None)
    own = _own(repository, reading)
    damaged: dict[str, str] = {}
    while True:
        sound = tuple(segment for segment in own if segment.name not in damaged)
        absorbed = _absorbed(sound, fresh, host, MERGE_LIMIT_BYTES)
        try:
            wrote = _write_segment(repository, facts, sound, absorbed, fresh)
        except Damaged as error:
            damaged |= error.reasons
        else:
            return replace(wrote, warnings=tuple(starmap(_beside, damaged.items())))


def _beside(name: str, reason: str) -> str:
    return f"segment {name[:12]} is damaged, so it stays beside the new one: {reason}"


def mergeable(repository: Repository, reading: Reading) -> tuple[Segment, ...]:
    """The live segments that one can take the place of, for every host; none if there are not two.

    However large they are: this is the work of a janitor, and no start waits for it.
    """
    own = _own(repository, reading)
    chosen = _absorbed(own, (), Capabilities(unchecked=True), sys.maxsize)
    while len(whole := _replaced(chosen)) < len(chosen):
        chosen = whole
    return chosen if len(chosen) > 1 else ()


def _replaced(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Those of the segments that the union of them all can take the place of."""
    union = _carried(segments, ())
    return tuple(segment for segment in segments if replaces(union, segment))


def unite(repository: Repository, facts: Facts, reading: Reading) -> Publication:
    """Writes one segment with all that the mergeable ones hold, and nothing else.

    Raises IntegrityError if a pack is not what its manifest says; then nothing was written.
    """
    absorbed = mergeable(repository, reading)
    if not absorbed:
        return Publication(facts.address, None)
    return _write_segment(repository, facts, _own(repository, reading), absorbed, ())


def _own(repository: Repository, reading: Reading) -> tuple[Segment, ...]:
    """The live segments whose signers are the keys that sign here: who trusts them loses nothing
    if one of those keys' segments takes their place."""
    return tuple(s for s in reading.segments if s.signers == repository.signing)


def _write_segment(
    repository: Repository,
    facts: Facts,
    own: Sequence[Segment],
    absorbed: tuple[Segment, ...],
    fresh: Sequence[Draft],
) -> Publication:
    carried = _carried(absorbed, fresh)
    with scratch("push") as folder:
        file = folder / "pack"
        sources = [source for draft in fresh for source in draft.sources]
        sources += spooled(repository, absorbed, carried, folder)
        pack, entries = write_pack(sources, file)
        units = (*carried.values(), *(_as_unit(draft, entries) for draft in fresh))
        manifest = _manifest(facts, units, pack, own, absorbed)
        name = _write(repository, manifest, file)
    return Publication(
        address=facts.address,
        segment=name,
        added=len(fresh),
        carried=len(carried),
        pack_bytes=pack.size,
        unpacked_bytes=manifest.size,
        superseded=manifest.supersedes,
    )


def _absorbed(
    segments: Sequence[Segment],
    fresh: Sequence[Draft],
    host: Capabilities,
    limit: int,
) -> tuple[Segment, ...]:
    """The segments to be merged into the new one, out of those with the same signers.

    A signature says who has compiled something, so nobody signs what others have, and nobody takes
    away a signature. A segment also stays beside if this host cannot use one of its
    units, or if one of them would give way to a unit that needs more of a host: merging by key
    would take it from other hosts. Of the others the smallest are merged, as many as stay within
    the limit.
    """
    usable = [
        segment
        for segment in segments
        if not any(host.unmet(unit.requires) for unit in segment.manifest.units)
    ]
    best = merge(unit for segment in usable for unit in segment.units)
    needs = {key: set(unit.requires) for key, unit in best.items()}
    needs |= {draft.key: set(draft.requires) for draft in fresh}
    safe = [
        segment
        for segment in usable
        if all(needs.get(u.key, set()) <= set(u.requires) for u in segment.manifest.units)
    ]
    chosen = _smallest(safe, limit)
    return tuple(segment for segment in segments if segment.name in chosen)


def _smallest(segments: Iterable[Segment], left: int) -> set[str]:
    """The names of the smallest segments, as many as have so many bytes together."""
    names: set[str] = set()
    for segment in sorted(segments, key=lambda segment: segment.manifest.pack.size):
        left -= segment.manifest.pack.size
        if left < 0:
            break
        names.add(segment.name)
    return names


def _carried(absorbed: Iterable[Segment], fresh: Sequence[Draft]) -> dict[str, Unit]:
    """The absorbed units that are still the best, and can lie beside the fresh ones."""
    occupied = Occupied()
    for draft in fresh:
        occupied.add(source.path for source in draft.sources)
    made_again = {draft.key for draft in fresh}
    held = merge(unit for segment in absorbed for unit in segment.units)
    return {
        key: unit
        for key, unit in held.items()
        if key not in made_again and not occupied.clashes(entry.path for entry in unit.entries)
    }


def _fitting(segments: Iterable[Segment], host: Capabilities) -> Iterator[Unit]:
    return (unit for segment in segments for unit in segment.units if not host.unmet(unit.requires))


def _as_unit(draft: Draft, entries: Mapping[str, Entry]) -> Unit:
    found = tuple(entries[source.path] for source in draft.sources)
    return Unit(draft.key, found, draft.origin, draft.requires)


def _manifest(
    facts: Facts,
    units: Iterable[Unit],
    pack: Pack,
    segments: Sequence[Segment],
    absorbed: Sequence[Segment],
) -> Manifest:
    covered = {text for segment in absorbed for text in segment.manifest.coverage}
    tags = {tag for segment in absorbed for tag in segment.manifest.tags}
    proofs = [segment.manifest.proof for segment in segments if segment.manifest.proof]
    older = {name for segment in absorbed for name in (segment.name, *segment.manifest.supersedes)}
    return Manifest(
        address=facts.address,
        environment=facts.environment,
        model=facts.model,
        created=facts.created,
        nonce=facts.nonce,
        units=tuple(sorted(units, key=lambda unit: unit.key)),
        pack=pack,
        producer=facts.producer,
        supersedes=tuple(sorted(older)),
        coverage=tuple(sorted({*facts.coverage, *covered})),
        proof=carried_proof(facts.proof, proofs),
        tags=tuple(sorted({*facts.tags, *tags})),
        extra=_extra(absorbed),
    )


def _extra(absorbed: Iterable[Segment]) -> Extra:
    """Fields of newer writers that describe the bundle; of one name the youngest stands."""
    known = {name: text for segment in absorbed for name, text in segment.manifest.extra}
    return tuple(sorted(known.items()))


def _write(repository: Repository, manifest: Manifest, file: Path) -> str:
    """Pack first, then the signature, manifest last: the manifest is the commit point. What
    readers would refuse is not written at all."""
    data = manifest.to_bytes()
    name = digest_bytes(data)
    store, address = repository.store, manifest.address
    where = f"the manifest to be published under {address}"
    if len(data) > MAX_MANIFEST_BYTES:
        raise IntegrityError(f"{where} has {len(data)} bytes, more than any reader takes: {_SPLIT}")
    Manifest.parse(data, where)
    writes: dict[str, Callable[[str], None]] = {
        object_key(address, name, PACK): partial(store.put_file, path=file)
    }
    if repository.keys:
        from cachesvc.repository.signing import sign

        signature = sign(data, repository.keys)
        writes[object_key(address, name, SIGNATURE)] = partial(store.put, data=signature)
    began = monotonic()
    for key, write in writes.items():
        write(key)
    _give_up_if_late(address, monotonic() - began)
    store.put(object_key(address, name, MANIFEST), data)
    for key, write in writes.items():
        if _is_gone(store, key):
            write(key)
    return name


def _is_gone(store: Store, key: str) -> bool:
    """Whether a janitor whose clock is wrong took an object for rubbish. What cannot be looked at
    is there: all has been written, and the manifest says so to readers."""
    with suppress(StoreError):
        return store.stat(key) is None
    return False


def _give_up_if_late(address: Address, seconds: float) -> None:
    """A pack without a manifest is rubbish to a janitor, once it is old enough."""
    if seconds > PUSH_S:
        raise StoreError(
            f"writing the pack of {address} took {seconds:.0f} s, and after {PUSH_S:.0f} s it could"
            " be taken for rubbish before its manifest is there: nothing was published; push again"
            " over a faster connection, or less at a time"
        )
