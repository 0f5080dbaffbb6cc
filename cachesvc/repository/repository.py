"""Reading bundles out of a store. Nothing here writes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachesvc.core.address import BUNDLES, Address, check_name
from cachesvc.core.daemon_pool import DaemonPool
from cachesvc.core.digest import digest_bytes, digest_stream
from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Entry, Manifest
from cachesvc.core.merge import Segment, live
from cachesvc.core.trust import EVERYONE, Trust, shown_keys
from cachesvc.repository.listing import (
    MANIFEST,
    PACK,
    SIGNATURE,
    Bundle,
    Listed,
    bundles,
    object_key,
)
from cachesvc.repository.scratch import scratch_errors
from cachesvc.store.contract import Store

if TYPE_CHECKING:
    from cachesvc.repository.keys import SigningKey
    from cachesvc.repository.pack import VerifiedStream
    from cachesvc.repository.signing import Signature

MAX_MANIFEST_BYTES = 64 << 20
MAX_SIGNATURE_BYTES = 64 << 10
_READERS = 8


class PackMissing(IntegrityError):
    """A manifest stands without its pack, as while a janitor deletes it: list again once."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A segment that is not used, and why.

    `untrusted` if nothing is wrong with it but that it is not signed by whom it should be, revoked,
    or too old.
    """

    address: Address
    segment: str
    reason: str
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What one address holds: its live segments, and those that were refused."""

    address: Address
    segments: tuple[Segment, ...]
    refused: tuple[Refused, ...] = ()


class Repository:
    """The bundles of one store, as far as `trust` lets them count.

    `keys` are those that sign what is published through it.
    """

    def __init__(
        self, store: Store, trust: Trust = EVERYONE, keys: tuple[SigningKey, ...] = ()
    ) -> None:
        self.store = store
        self.trust = trust
        self.keys = keys

    @property
    def signing(self) -> frozenset[str]:
        """The public halves of the keys that sign."""
        return frozenset(key.public for key in self.keys)

    def bundles(self, name: str | None = None) -> tuple[Bundle, ...]:
        """All bundles, or those of one name, by address."""
        prefix = f"{BUNDLES}/" if name is None else f"{BUNDLES}/{check_name(name)}/"
        return bundles(self.store.list(prefix))

    def bundle(self, address: Address) -> Bundle | None:
        """The bundle at this address, or None."""
        return next(iter(bundles(self.store.list(address.prefix))), None)

    def read(self, bundle: Bundle, *, superseded: bool = False, signed: bool = False) -> Reading:
        """The manifests of a listed bundle, verified; superseded segments only if asked for.

        A segment whose manifest is not what its name says, says another address, or is not to be
        trusted, is refused: it is named, not used, and counts for nothing. Who signed a segment is
        found out where the trust asks for it, or with `signed`.
        """
        with DaemonPool(_READERS, "tccache-read") as pool:
            results = list(
                pool.map(
                    lambda listed: self._segment(bundle.address, listed, signed), bundle.segments
                )
            )
        segments = [item for item in results if isinstance(item, Segment)]
        refused = [item for item in results if isinstance(item, Refused)]
        chosen = tuple(segments) if superseded else live(segments)
        return Reading(bundle.address, chosen, tuple(refused))

    def manifest_bytes(self, address: Address, segment: str) -> bytes | None:
        """A manifest's exact bytes as they lie in the store, or None."""
        key = object_key(address, segment, MANIFEST)
        return self.store.get(key, limit=MAX_MANIFEST_BYTES)

    def _segment(self, address: Address, listed: Listed, signed: bool) -> Segment | Refused | None:
        """Who is said to have signed comes first; then the bytes, the signatures, and the rest.

        So of who is not trusted no manifest is brought, and of whose signature is wrong none is
        parsed.
        """
        name, where = listed.name, object_key(address, listed.name, MANIFEST)
        weighed = signed or self.trust.weighs_signers
        try:
            signature = self._signature(address, listed) if weighed else None
            claimed = signature.keys if signature is not None else frozenset()
            if issue := self.trust.signature_issue(claimed):
                return Refused(address, name, f"{where} {issue}", untrusted=True)
            data = self.manifest_bytes(address, name)
            if data is None:
                return None
            if digest_bytes(data) != name:
                raise IntegrityError(f"{where} does not have the digest that its name says")
            asked = claimed if signed else claimed & (self.trust.accepted | self.trust.revoked)
            signers = frozenset() if signature is None else signature.signers(data, asked)
            if self.trust.signature_issue(signers):
                issue = f"is not signed by {shown_keys(asked)}, as its signature says"
                return Refused(address, name, f"{where} {issue}", untrusted=True)
            manifest = Manifest.parse(data, where)
            if manifest.address != address:
                raise IntegrityError(f"{where} says that it belongs to {manifest.address}")
        except IntegrityError as error:
            return Refused(address, name, str(error))
        since = self.trust.since(datetime.now(timezone.utc))
        if issue := self.trust.segment_issue(name, manifest.created, since):
            return Refused(address, name, f"{where} {issue}", untrusted=True)
        return Segment(name, manifest, signers, self.trust.revoked, since)

    def _signature(self, address: Address, listed: Listed) -> Signature | None:
        if listed.signature is None:
            return None
        where = object_key(address, listed.name, SIGNATURE)
        data = self.store.get(where, limit=MAX_SIGNATURE_BYTES)
        if data is None:
            return None
        # Loads the curve, which a store that is trusted as a whole has no use for.
        from cachesvc.repository.signing import Signature

        return Signature.parse(data, where)

    def fetch(
        self, segment: Segment, target: Path, gets_on: Callable[[], object] = lambda: None
    ) -> None:
        """Brings a segment's pack into the file `target` and checks its size and digest.

        `gets_on` is called whenever more of it has come.

        Raises PackMissing if the store has no such pack, IntegrityError if it has another,
        TccacheError if the file cannot be written.
        """
        pack = segment.manifest.pack
        key = object_key(segment.manifest.address, segment.name, PACK)
        with scratch_errors(target), _Growing(target, gets_on) as file:
            size = self.store.fetch(key, file, limit=pack.size)
            file.seek(0)
            sha256 = digest_stream(file)
        if size is None:
            raise PackMissing(f"{key} is gone from {self.store.url}: its manifest names a pack")
        if (size, sha256) != (pack.size, pack.sha256):
            raise IntegrityError(
                f"{key} in {self.store.url} does not have the size and digest that its manifest"
                " says: `tccache verify --repair` removes what is damaged; then push it again"
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


class _Growing(io.BufferedRandom):
    """A new file that tells of each write to it."""

    def __init__(self, path: Path, told: Callable[[], object]) -> None:
        super().__init__(io.FileIO(path, "w+"))
        self._told = told

    def write(self, data: Any, /) -> int:
        self._told()
        return super().write(data)
