"""What is in a store: list, show, remove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from cachesvc.core.errors import BundleNotFound, TccacheError
from cachesvc.core.manifest import Manifest, Unit
from cachesvc.core.merge import Segment, merge
from cachesvc.core.proof import Proof
from cachesvc.local.quarantine import SetAside, read_quarantine
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import Reading, Repository
from cachesvc.runtime.directories import current
from cachesvc.start.access import TrustLike, access
from cachesvc.start.bundles import matching
from cachesvc.start.scope import scope_of
from cachesvc.start.settings import StoreLike, open_repository
from cachesvc.start.target import own_environment


@dataclass(frozen=True, slots=True)
class Listing:
    """One bundle as `ls` shows it: sizes are bytes in the store, time is by the store's clock."""

    name: str
    model: str
    environment: str
    segments: int
    bytes: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class SegmentDetail:
    """One live segment of a bundle."""

    name: str
    created: str
    units: int
    pack_bytes: int
    unpacked_bytes: int
    supersedes: int
    signers: tuple[str, ...] = ()
    """The public keys, in hex, that have signed it; nobody was asked whether to trust them."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One bundle, read: the union of its live segments."""

    listing: Listing
    environment: dict[str, str]
    model: dict[str, str]
    segments: tuple[SegmentDetail, ...]
    sections: dict[str, tuple[int, int, int]]
    """Units, files and bytes of each section."""
    requirements: tuple[str, ...]
    coverage: tuple[str, ...]
    tags: tuple[str, ...]
    proof: Proof | None
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removal:
    """What `remove` deleted, or would delete."""

    bundles: tuple[Listing, ...]
    objects: int
    bytes: int


def list_bundles(
    name: str | None = None, *, store: StoreLike | None = None, trust: TrustLike | None = None
) -> tuple[Listing, ...]:
    """All bundles of a store, or those that a name or model digest means. Reads no manifest."""
    repository = open_repository(store, trust)
    found = repository.bundles() if name is None else matching(repository, name)
    return tuple(_listing(bundle) for bundle in found)


def list_set_aside(*, trust: TrustLike | None = None) -> tuple[SetAside, ...]:
    """The units that have failed on this machine and are not used any more, oldest first.

    Those of the live directory that a start which trusts so would use; none where no torch is
    installed.
    """
    environment = own_environment()
    if environment is None:
        return ()
    try:
        return read_quarantine(current(environment, scope_of(access(trust))).places.records)
    except TccacheError:  # no directory can be used, so nothing was ever set aside in one
        return ()


def show(
    bundle: str, *, store: StoreLike | None = None, trust: TrustLike | None = None
) -> tuple[Detail, ...]:
    """The bundles that a name, digest or address means, read. Raises BundleNotFound for none."""
    repository = open_repository(store, trust)
    return tuple(
        _detail(item, repository.read(item, signed=True)) for item in required(repository, bundle)
    )


def remove(
    bundle: str,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    dry_run: bool = False,
) -> Removal:
    """Deletes bundles: manifests first, so that no reader finds one without its pack for long.

    A push that merges at the same moment may bring the units back. Raises BundleNotFound if
    nothing is meant.
    """
    repository = open_repository(store, trust)
    found = required(repository, bundle)
    objects = [stat for item in found for stat in item.objects]
    if not dry_run:
        for stat in sorted(objects, key=lambda stat: not stat.key.endswith(".json")):
            repository.store.delete(stat.key)
    return Removal(tuple(map(_listing, found)), len(objects), sum(stat.size for stat in objects))


def required(repository: Repository, text: str) -> tuple[Bundle, ...]:
    """The bundles that a text means, as listed. Raises BundleNotFound for none."""
    found = matching(repository, text)
    if not found:
        raise BundleNotFound(
            f"no bundle {text} in {repository.store.url}: `tccache ls` shows what is there"
        )
    return found


def _listing(bundle: Bundle) -> Listing:
    address = bundle.address
    return Listing(
        name=address.name,
        model=address.model,
        environment=address.environment,
        segments=len(bundle.segments),
        bytes=bundle.size,
        modified=bundle.modified,
    )


def _detail(bundle: Bundle, reading: Reading) -> Detail:
    manifests = [segment.manifest for segment in reading.segments]
    units = merge(unit for segment in reading.segments for unit in segment.units).values()
    newest: Manifest | None = manifests[-1] if manifests else None
    return Detail(
        listing=_listing(bundle),
        environment=dict(newest.environment) if newest else {},
        model=dict(newest.model) if newest else {},
        segments=tuple(map(_segment_detail, reading.segments)),
        sections=dict(_sections(units)),
        requirements=tuple(sorted({str(need) for unit in units for need in unit.requires})),
        coverage=tuple(sorted({text for m in manifests for text in m.coverage})),
        tags=tuple(sorted({tag for m in manifests for tag in m.tags})),
        proof=newest.proof if newest else None,
        refused=tuple(item.reason for item in reading.refused),
    )


def _segment_detail(segment: Segment) -> SegmentDetail:
    manifest = segment.manifest
    return SegmentDetail(
        name=segment.name,
        created=manifest.created,
        units=len(manifest.units),
        pack_bytes=manifest.pack.size,
        unpacked_bytes=manifest.size,
        supersedes=len(manifest.supersedes),
        signers=tuple(sorted(segment.signers)),
    )


def _sections(units: Iterable[Unit]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    by_section: dict[str, list[Unit]] = {}
    for unit in units:
        by_section.setdefault(unit.section, []).append(unit)
    for section, group in sorted(by_section.items()):
        files = sum(len(unit.entries) for unit in group)
        yield section, (len(group), files, sum(unit.size for unit in group))
