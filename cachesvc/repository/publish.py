"""Publication: a push adds one segment, or nothing.

The order is the protocol: the pack, then the signature (if signed), then the manifest. The
manifest's name is the digest of its bytes and these name the pack's digest, so a writer that is
killed leaves at most a pack that no reader looks at. Nobody locks: two pushers at once leave two
live segments, readers take the union, the next push merges.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import TccacheError
from cachesvc.core.manifest import Entry, Manifest, Origin, Pack, Proof, Unit
from cachesvc.core.merge import Segment, fewest_packs, merge
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.repository.listing import MANIFEST, PACK, object_key
from cachesvc.repository.pack import Source, copy, write_pack
from cachesvc.repository.repository import Reading, Repository

MERGE_LIMIT_BYTES = 256 << 20
"""Packs that together are larger than this are not brought here to be merged into one."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A unit to be published: its files, what it needs of a host, who made it."""

    key: str
    sources: tuple[Source, ...]
    origin: Origin
    requires: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """What a push wrote. `segment` is None if the store had everything already."""

    address: Address
    segment: str | None
    added: int = 0
    carried: int = 0
    pack_bytes: int = 0
    unpacked_bytes: int = 0
    superseded: tuple[str, ...] = ()


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


def held_units(reading: Reading, host: Capabilities) -> dict[str, Unit]:
    """What the live segments offer to hosts like this one, by key.

    A stored unit that this host cannot use does not count: another ISA wrote it.
    """
    return merge(_fitting(reading.segments, host))


def publish(
    repository: Repository,
    facts: Facts,
    reading: Reading,
    drafts: Sequence[Draft],
    host: Capabilities,
) -> Publication:
    """Writes one segment with these drafts and, where that is cheap, all that is live already.

    Segments that hold a unit unfit for this host stay beside: merging by key would lose theirs.
    Raises TccacheError if there is nothing to publish; a bundle is never empty.
    """
    if not drafts:
        raise TccacheError(
            f"nothing to publish under {facts.address}: no unit was found; compile the model first,"
            " or name the directories that hold its cache"
        )
    absorbed = _absorbed(reading.segments, host)
    fresh = {draft.key for draft in drafts}
    held = merge(unit for segment in absorbed for unit in segment.units)
    carried = {key: unit for key, unit in held.items() if key not in fresh}
    with tempfile.TemporaryDirectory(prefix="tccache-push-") as folder:
        sources = [source for draft in drafts for source in draft.sources]
        sources += _spooled(repository, absorbed, carried, Path(folder))
        file = Path(folder) / "pack"
        pack, entries = write_pack(sources, file)
        units = (*carried.values(), *(_as_unit(draft, entries) for draft in drafts))
        manifest = _manifest(facts, units, pack, absorbed)
        name = _write(repository, manifest, file)
    return Publication(
        address=facts.address,
        segment=name,
        added=len(drafts),
        carried=len(carried),
        pack_bytes=pack.size,
        unpacked_bytes=manifest.size,
        superseded=manifest.supersedes,
    )


def _absorbed(segments: tuple[Segment, ...], host: Capabilities) -> tuple[Segment, ...]:
    """The segments to be merged into the new one: wholly usable here, and small together."""
    usable = tuple(
        segment
        for segment in segments
        if not any(host.unmet(unit.requires) for unit in segment.manifest.units)
    )
    small = sum(segment.manifest.pack.size for segment in usable) <= MERGE_LIMIT_BYTES
    return usable if small else ()


def _fitting(segments: Iterable[Segment], host: Capabilities) -> Iterator[Unit]:
    return (unit for segment in segments for unit in segment.units if not host.unmet(unit.requires))


def _spooled(
    repository: Repository,
    segments: tuple[Segment, ...],
    wanted: Mapping[str, Unit],
    folder: Path,
) -> Iterator[Source]:
    """The files of units that are stored already, brought to disk so that they can be re-packed."""
    for segment, units in fewest_packs(segments, wanted).parts:
        pack = folder / segment.name
        repository.fetch(segment, pack)
        entries = [entry for unit in units for entry in unit.entries]
        for number, (entry, stream) in enumerate(repository.entries(segment, pack, entries)):
            file = folder / f"{segment.name}-{number}"
            with open(file, "wb") as target:
                copy(stream, target)
            yield Source(entry.path, entry.size, partial(_open, file))
        pack.unlink()


def _open(file: Path) -> BinaryIO:
    return open(file, "rb")


def _as_unit(draft: Draft, entries: Mapping[str, Entry]) -> Unit:
    found = (
        entries.get(source.path) or Entry(source.path, source.size, "") for source in draft.sources
    )
    return Unit(draft.key, tuple(found), draft.origin, draft.requires)


def _manifest(
    facts: Facts, units: tuple[Unit, ...], pack: Pack, absorbed: tuple[Segment, ...]
) -> Manifest:
    covered = {text for segment in absorbed for text in segment.manifest.coverage}
    tags = {tag for segment in absorbed for tag in segment.manifest.tags}
    proofs = [segment.manifest.proof for segment in absorbed if segment.manifest.proof]
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
        proof=facts.proof or (proofs[-1] if proofs else None),
        tags=tuple(sorted({*facts.tags, *tags})),
    )


def _write(repository: Repository, manifest: Manifest, pack: Path) -> str:
    """Pack first, manifest last: the manifest is the commit point."""
    data = manifest.to_bytes()
    name = digest_bytes(data)
    repository.store.put_file(object_key(manifest.address, name, PACK), pack)
    repository.store.put(object_key(manifest.address, name, MANIFEST), data)
    return name
