"""Reading bundles out of a store. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cachesvc.core.address import BUNDLES, Address, check_name
from cachesvc.core.daemon_pool import DaemonPool
from cachesvc.core.digest import digest_bytes, digest_stream
from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Entry, Manifest
from cachesvc.core.merge import Segment, live
from cachesvc.repository.listing import MANIFEST, PACK, Bundle, bundles, object_key
from cachesvc.repository.scratch import scratch_errors
from cachesvc.store.contract import Store

if TYPE_CHECKING:
    from cachesvc.repository.pack import VerifiedStream

MAX_MANIFEST_BYTES = 64 << 20
_READERS = 8


class PackMissing(IntegrityError):
    """A manifest stands without its pack, as while a janitor deletes it: list again once."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A segment that is not used, and why."""

    address: Address
    segment: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What one address holds: its live segments, and those that were refused."""

    address: Address
    segments: tuple[Segment, ...]
    refused: tuple[Refused, ...] = ()


class Repository:
    """The bundles of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def bundles(self, name: str | None = None) -> tuple[Bundle, ...]:
        """All bundles, or those of one name, by address."""
        prefix = f"{BUNDLES}/" if name is None else f"{BUNDLES}/{check_name(name)}/"
        return bundles(self.store.list(prefix))

    def bundle(self, address: Address) -> Bundle | None:
        """The bundle at this address, or None."""
        return next(iter(bundles(self.store.list(address.prefix))), None)

    def read(self, bundle: Bundle, *, superseded: bool = False) -> Reading:
        """The manifests of a listed bundle, verified; superseded segments only if asked for.

        A segment whose manifest is not what its name says, or says another address, is refused:
        it is named, not used, and counts for nothing.
        """
        with DaemonPool(_READERS, "tccache-read") as pool:
            names = [listed.name for listed in bundle.segments]
            results = list(pool.map(lambda name: self._segment(bundle.address, name), names))
        segments = [item for item in results if isinstance(item, Segment)]
        refused = [item for item in results if isinstance(item, Refused)]
        chosen = tuple(segments) if superseded else live(segments)
        return Reading(bundle.address, chosen, tuple(refused))

    def manifest_bytes(self, address: Address, segment: str) -> bytes | None:
        """A manifest's exact bytes as they lie in the store, or None."""
        key = object_key(address, segment, MANIFEST)
        return self.store.get(key, limit=MAX_MANIFEST_BYTES)

    def _segment(self, address: Address, name: str) -> Segment | Refused | None:
        where = object_key(address, name, MANIFEST)
        try:
            data = self.manifest_bytes(address, name)
            if data is None:
                return None
            if digest_bytes(data) != name:
                raise IntegrityError(f"{where} does not have the digest that its name says")
            manifest = Manifest.parse(data, where)
            if manifest.address != address:
                raise IntegrityError(f"{where} says that it belongs to {manifest.address}")
        except IntegrityError as error:
            return Refused(address, name, str(error))
        return Segment(name, manifest)

    def fetch(self, segment: Segment, target: Path) -> None:
        """Brings a segment's pack into the file `target` and checks its size and digest.

        Raises PackMissing if the store has no such pack, IntegrityError if it has another,
        TccacheError if the file cannot be written.
        """
        pack = segment.manifest.pack
        key = object_key(segment.manifest.address, segment.name, PACK)
        with scratch_errors(target), open(target, "w+b") as file:
            size = self.store.fetch(key, file, limit=pack.size)
            file.seek(0)
            sha256 = digest_stream(file)
        if size is None:
            raise PackMissing(f"{key} is gone from {self.store.url}: its manifest names a pack")
        if (size, sha256) != (pack.size, pack.sha256):
            raise IntegrityError(
                f"{key} in {self.store.url} does not have the size and digest that its manifest"
                " says: remove the bundle and push it again"
            )

    @staticmethod
    def entries(
        segment: Segment, file: Path, wanted: Iterable[Entry]
    ) -> Iterator[tuple[Entry, VerifiedStream]]:
        """The wanted entries out of a fetched pack, each verified as it is read."""
        # Loads the decoder, which a start that finds everything in place has no use for.
        from cachesvc.repository.pack import read_pack

        where = object_key(segment.manifest.address, segment.name, PACK)
        index = {entry.path: entry for entry in wanted}
        with open(file, "rb") as source:
            yield from read_pack(source, segment.manifest.pack, index, where)
