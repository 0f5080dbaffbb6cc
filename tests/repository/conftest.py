"""A store to push to and to read from, as separate processes would: nothing is kept between."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.manifest import Origin
from cachesvc.core.merge import fewest_packs, merge
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.core.trust import EVERYONE, Trust
from cachesvc.repository.keys import SigningKey
from cachesvc.repository.pack import Source
from cachesvc.repository.publish import Draft, Facts, Publication, held_units, publish
from cachesvc.repository.repository import Reading, Repository
from cachesvc.store.contract import Store
from cachesvc.store.location import open_store

ENVIRONMENT = Components.of({"torch": "2.9.0", "device": "cpu"})
HOST = Capabilities(isa=frozenset({"avx2"}))


def source(path: str, data: bytes) -> Source:
    return Source(path, len(data), lambda: io.BytesIO(data))


@dataclass
class Desk:
    """One bundle's place in a store; the clock goes on by a second with each push."""

    store: Store
    folder: Path
    address: Address = Address("gpt", "any", ENVIRONMENT.digest)  # noqa: RUF009  a frozen value
    host: Capabilities = field(default_factory=lambda: HOST)
    clock: int = 0
    signing: tuple[SigningKey, ...] = ()
    trust: Trust = EVERYONE

    @property
    def repository(self) -> Repository:
        return Repository(self.store, self.trust, self.signing)

    def draft(self, key: str, *needs: str, **files: bytes) -> Draft:
        """A unit of this second: its files by name, and the CPU features that it needs."""
        sources = tuple(source(f"{key}/{name}", data) for name, data in sorted(files.items()))
        requires = tuple(Requirement("isa", need) for need in needs)
        return Draft(key, sources, Origin(self._now(), "any"), requires)

    def push(self, *drafts: Draft, reading: Reading | None = None, **facts: Any) -> Publication:
        """Publishes after a fresh look at the store, or after an older one that is given."""
        self.clock += 1
        said = Facts(
            address=self.address,
            environment=ENVIRONMENT,
            model=Components(),
            created=self._now(),
            nonce=f"{self.clock:032x}",
            producer=Components.of({"tccache": "0"}),
        )
        said = Facts(**{name: facts.get(name, getattr(said, name)) for name in Facts.__slots__})
        seen = self.read() if reading is None else reading
        return publish(self.repository, said, seen, drafts, self.host)

    def read(self) -> Reading:
        """What a new process finds."""
        repository = self.repository
        bundle = repository.bundle(self.address)
        return Reading(self.address, ()) if bundle is None else repository.read(bundle, signed=True)

    def contents(self) -> dict[str, bytes]:
        """The bytes of all entries of the union, fetched as a pull does it."""
        repository, reading = self.repository, self.read()
        union = merge(unit for segment in reading.segments for unit in segment.units)
        cover = fewest_packs(reading.segments, union)
        assert {unit.key for unit in cover.units} == set(union)
        found: dict[str, bytes] = {}
        for segment, units in cover.parts:
            file = self.folder / segment.name
            repository.fetch(segment, file)
            entries = [entry for unit in units for entry in unit.entries]
            for entry, stream in repository.entries(segment, file, entries):
                found[entry.path] = b"".join(iter(partial(stream.read, 7), b""))
        return found

    def usable(self) -> set[str]:
        """The keys of the units that this host can use."""
        return set(held_units(self.read(), self.host))

    def keys(self) -> list[str]:
        """Every object in the store."""
        return [stat.key for stat in self.store.list()]

    def _now(self) -> str:
        return f"2025-01-01T00:{self.clock // 60:02}:{self.clock % 60:02}.000000Z"


@pytest.fixture(params=["directory", "memory"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that needs no server."""
    if request.param == "directory":
        yield open_store(tmp_path / "store")
        return
    name = uuid.uuid4().hex
    yield open_store(f"memory://{name}/prefix", trusted=True)
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


@pytest.fixture
def make_desk(tmp_path: Path) -> Callable[..., Desk]:
    """Makes desks at a store, by default in a directory."""
    folder = tmp_path / "fetched"
    folder.mkdir()

    def make(store: Store | None = None, **fields: Any) -> Desk:
        return Desk(store or open_store(tmp_path / "store"), folder, **fields)

    return make


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    return make_desk()
