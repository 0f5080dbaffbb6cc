"""The bundles of a store as it lists them: addresses, segments, objects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cachesvc.core.address import ANY_MODEL, BUNDLES, NAME, Address
from cachesvc.core.digest import DIGEST
from cachesvc.store.contract import Stat

_OBJECT = re.compile(
    rf"{BUNDLES}/(?P<name>{NAME.pattern})/(?P<model>{ANY_MODEL}|{DIGEST.pattern})"
    rf"/(?P<environment>{DIGEST.pattern})/(?P<segment>{DIGEST.pattern})"
    r"\.(?P<kind>tar\.zst|sig|json)"
)
PACK, SIGNATURE, MANIFEST = "tar.zst", "sig", "json"


@dataclass(frozen=True, slots=True)
class Listed:
    """One segment as the store lists it; a segment exists once its manifest does."""

    name: str
    manifest: Stat
    pack: Stat | None = None
    signature: Stat | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """An address and the segments under it, as listed; packs without a manifest are orphans."""

    address: Address
    segments: tuple[Listed, ...]
    orphans: tuple[Stat, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all objects under the address."""
        return sum(stat.size for stat in self.objects)

    @property
    def objects(self) -> tuple[Stat, ...]:
        parts = ((s.manifest, s.pack, s.signature) for s in self.segments)
        return (*(stat for part in parts for stat in part if stat is not None), *self.orphans)

    @property
    def modified(self) -> datetime:
        """When the newest object was written, by the store's clock."""
        return max(stat.modified for stat in self.objects)


def object_key(address: Address, segment: str, kind: str) -> str:
    """The store key of one of a segment's objects."""
    return f"{address.prefix}{segment}.{kind}"


def bundles(objects: Iterable[Stat]) -> tuple[Bundle, ...]:
    """The bundles among listed objects, by address; names that are none of ours are passed over."""
    found: dict[Address, dict[str, dict[str, Stat]]] = {}
    for stat in objects:
        match = _OBJECT.fullmatch(stat.key)
        if match:
            address = Address(match["name"], match["model"], match["environment"])
            kinds = found.setdefault(address, {}).setdefault(match["segment"], {})
            kinds[match["kind"]] = stat
    return tuple(_bundle(address, found[address]) for address in sorted(found))


def _bundle(address: Address, segments: dict[str, dict[str, Stat]]) -> Bundle:
    listed = tuple(
        Listed(name, kinds[MANIFEST], kinds.get(PACK), kinds.get(SIGNATURE))
        for name, kinds in sorted(segments.items())
        if MANIFEST in kinds
    )
    orphans = (
        stat for kinds in segments.values() if MANIFEST not in kinds for stat in kinds.values()
    )
    return Bundle(address, listed, tuple(orphans))
