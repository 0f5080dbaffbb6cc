"""Whether a bundle is what it says: manifests, signatures, packs, files.

What looks wrong is looked at twice, because a janitor or a push may be at work. Only what no reader
can ever use is called damaged: not what is merely untrusted, and not what another version wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cachesvc.core.address import Address
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import load_object
from cachesvc.core.merge import Segment
from cachesvc.repository.gc import Deletion, objects_of
from cachesvc.repository.listing import MANIFEST, SIGNATURE, Bundle, Listed, object_key
from cachesvc.repository.repository import MAX_SIGNATURE_BYTES, Refused, Repository
from cachesvc.repository.scratch import scratch
from cachesvc.repository.signing import Signature

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be, and the objects that have to go so that the next push
    writes it again; None where nobody may decide that by machine."""

    reason: str
    cure: Deletion | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """One bundle, read to the last byte: accepted segments, their files and bytes, problems."""

    bundle: Bundle
    segments: int
    entries: int
    bytes: int
    problems: tuple[Problem, ...]


def check_bundle(
    repository: Repository, bundle: Bundle, progress: Callable[[str], None]
) -> Checked:
    """Reads all of a listed bundle, superseded segments too. Raises StoreError."""
    listed = {item.name: item for item in bundle.segments}
    segments, refused = _read(repository, bundle)
    found = [_of_refused(repository, item, listed[item.segment]) for item in refused]
    entries = 0
    for segment in segments:
        progress(f"verify {bundle.address} {segment.name[:12]}")
        entries += sum(len(unit.entries) for unit in segment.manifest.units)
        found.append(_of_pack(repository, segment, listed[segment.name]))
        found.append(_of_signature(repository, segment, listed[segment.name]))
    return Checked(
        bundle=bundle,
        segments=len(segments),
        entries=entries,
        bytes=sum(segment.manifest.pack.size for segment in segments),
        problems=tuple(problem for problem in found if problem is not None),
    )


def _read(
    repository: Repository, bundle: Bundle
) -> tuple[tuple[Segment, ...], tuple[Refused, ...]]:
    """All segments; those that are refused are read twice."""
    first = repository.read(bundle, superseded=True, signed=True)
    names = {item.segment for item in first.refused}
    again = replace(bundle, segments=tuple(s for s in bundle.segments if s.name in names))
    second = repository.read(again, superseded=True, signed=True)
    return (*first.segments, *second.segments), second.refused


def _of_refused(repository: Repository, refused: Refused, listed: Listed) -> Problem | None:
    """What is the matter with a segment that no reader uses."""
    address, name, reason = refused.address, refused.segment, refused.reason
    try:
        data = repository.manifest_bytes(address, name)
    except IntegrityError:
        return Problem(reason)
    if data is None:
        return None
    if digest_bytes(data) != name:
        return Problem(reason, _deletion(address, listed, reason))
    return _of_no_signature(repository, address, listed) or Problem(reason)


def _of_no_signature(repository: Repository, address: Address, listed: Listed) -> Problem | None:
    """What lies in a signature's place and is none; what another version wrote there may be one."""
    where = object_key(address, listed.name, SIGNATURE)
    if listed.signature is None:
        return None
    try:
        data = repository.store.get(where, limit=MAX_SIGNATURE_BYTES)
        if data is not None:
            load_object(data, where)
    except IntegrityError as error:
        reason = str(error)
        cure = Deletion(address, listed.name, "damaged", reason, (listed.signature,))
        return Problem(reason, cure)
    return None


def _of_signature(repository: Repository, segment: Segment, listed: Listed) -> Problem | None:
    """A signature that is not one of these bytes: anyone who can write to the store may add one,
    so it is named, and the segment counts as what its other signatures make it."""
    address, name = segment.manifest.address, segment.name
    where = object_key(address, name, SIGNATURE)
    if listed.signature is None:
        return None
    manifest = repository.manifest_bytes(address, name)
    signature = repository.store.get(where, limit=MAX_SIGNATURE_BYTES)
    if manifest is None or signature is None:
        return None
    wrong = Signature.parse(signature, where).wrong(manifest)
    return Problem(f"{where} holds a wrong signature by {', '.join(wrong)}") if wrong else None


def _of_pack(repository: Repository, segment: Segment, listed: Listed) -> Problem | None:
    """Reads a pack to its last entry, twice if it looks damaged."""
    address, name = segment.manifest.address, segment.name
    for _ in range(2):
        try:
            _read_pack(repository, segment)
            return None
        except IntegrityError as error:
            reason = str(error)
        if repository.store.stat(object_key(address, name, MANIFEST)) is None:
            return None
    return Problem(reason, _deletion(address, listed, reason))


def _read_pack(repository: Repository, segment: Segment) -> None:
    wanted = [entry for unit in segment.manifest.units for entry in unit.entries]
    with scratch("verify") as folder:
        pack = folder / "pack"
        repository.fetch(segment, pack)
        for _, stream in repository.entries(segment, pack, wanted):
            while stream.read(_CHUNK):
                pass


def _deletion(address: Address, listed: Listed, reason: str) -> Deletion:
    return Deletion(address, listed.name, "damaged", reason, objects_of(listed))
