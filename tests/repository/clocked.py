"""A store with a clock of its own, and segments written by hand."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.digest import digest_bytes
from cachesvc.core.manifest import Manifest, Origin, Unit
from cachesvc.core.requirement import Requirement
from cachesvc.repository.grace import GRACE_S, Grace
from cachesvc.repository.keys import SigningKey, make_key
from cachesvc.repository.listing import MANIFEST, PACK, SIGNATURE, object_key
from cachesvc.repository.pack import Source, write_pack
from cachesvc.repository.signing import sign
from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source as Stored
from cachesvc.store.wrapper import Wrapper

ENVIRONMENT = Components.of({"torch": "2.9.0", "device": "cpu"})
ADDRESS = Address("gpt", "any", ENVIRONMENT.digest)
HOUR = 3600.0
DAY = 86_400.0
LATE = GRACE_S + 1


class Clocked(Wrapper):
    """Dates its objects by a clock that stands still until it is moved; notes what is deleted."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.time = datetime(2025, 1, 1, tzinfo=timezone.utc)
        self.written: dict[str, datetime] = {}
        self.deleted: list[str] = []

    def wait(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def grace(self, seconds: float = GRACE_S) -> Grace:
        return Grace(self.now(), seconds)

    def _now(self) -> datetime:
        return self.time

    def _put(self, key: str, source: Stored) -> None:
        super()._put(key, source)
        self.written[key] = self.time

    def _list(self, prefix: str) -> Iterator[Stat]:
        return (self._dated(stat) for stat in super()._list(prefix))

    def _stat(self, key: str) -> Stat | None:
        found = super()._stat(key)
        return None if found is None else self._dated(found)

    def _delete(self, key: str) -> None:
        super()._delete(key)
        self.deleted.append(key)

    def _dated(self, stat: Stat) -> Stat:
        return replace(stat, modified=self.written[stat.key])


Units = Mapping[str, Mapping[str, bytes]]


def write_segment(
    store: Store,
    units: Units,
    *,
    address: Address = ADDRESS,
    environment: Components = ENVIRONMENT,
    supersedes: Sequence[str] = (),
    needs: Sequence[str] = (),
    tags: Sequence[str] = (),
    keys: Sequence[SigningKey] = (),
    nonce: str = "0" * 32,
) -> str:
    """Writes a segment that says what no honest writer would; its name."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "pack")
        sources = [
            Source(f"{key}/{name}", len(data), lambda data=data: io.BytesIO(data))  # type: ignore[misc]
            for key, files in units.items()
            for name, data in files.items()
        ]
        pack, entries = write_pack(sources, file)
        created = store.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        requires = tuple(Requirement("isa", need) for need in needs)
        manifest = Manifest(
            address=address,
            environment=environment,
            model=Components(),
            created=created,
            nonce=nonce,
            units=tuple(
                Unit(
                    key,
                    tuple(entries[f"{key}/{name}"] for name in sorted(files)),
                    Origin(created, "any"),
                    requires,
                )
                for key, files in sorted(units.items())
            ),
            pack=pack,
            supersedes=tuple(supersedes),
            tags=tuple(tags),
        )
        data = manifest.to_bytes()
        name = digest_bytes(data)
        store.put_file(object_key(address, name, PACK), file)
        if keys:
            store.put(object_key(address, name, SIGNATURE), sign(data, keys))
        store.put(object_key(address, name, MANIFEST), data)
    return name


def new_key(folder: Path, name: str) -> SigningKey:
    """A key of its own."""
    return make_key(folder / name)
