"""What a disk, a network or a stranger does to a store's objects is noticed, or exactly a miss."""

from __future__ import annotations

import io
import os
import random
import runpy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import cachesvc
from cachesvc.core.digest import digest_bytes
from cachesvc.core.manifest import Origin
from cachesvc.core.requirement import Capabilities
from cachesvc.local.group import relocate
from cachesvc.local.layout import is_group, unit_key
from cachesvc.repository.keys import SigningKey
from cachesvc.repository.publish import Draft, Facts, publish
from cachesvc.repository.repository import Reading, Repository
from cachesvc.repository.signing import sign
from cachesvc.store.directory import DirectoryStore

from .tries import quick_and_slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_v1.py"))
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
SIGNER = SigningKey(KEY.public_key().public_bytes_raw().hex(), KEY)
ENVIRONMENT = GOLDEN["ENVIRONMENT"].digest
MARK = "tccache.json"

Objects = dict[str, bytes]


def objects_of(folder: Path) -> Objects:
    """Every file below a folder, by its path there."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def put(folder: Path, objects: Objects) -> None:
    """Makes a folder hold just these files."""
    there = objects_of(folder)
    for name in there.keys() - objects.keys():
        (folder / name).unlink()
    for name, data in objects.items():
        if there.get(name) != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


@dataclass
class Mutation:
    """One change of a store: its kind, the objects that it touched, and the store afterwards."""

    kind: str
    touched: tuple[str, ...]
    objects: Objects


class Mutator:
    """Changes a store in one way, by chance; the same for the same seed."""

    def __init__(self, good: Objects, seed: int) -> None:
        self._good = good
        self._chance = random.Random(seed)
        self._kinds: dict[str, Callable[[str, bytes], Objects]] = {
            "flip": self._flip,
            "cut": lambda key, data: {key: data[: self._chance.randrange(len(data))]},
            "empty": lambda key, data: {key: b""},
            "append": lambda key, data: {key: data + self._chance.randbytes(9)},
            "swap": self._swap,
            "duplicate": self._duplicate,
        }

    def mutation(self) -> Mutation:
        kind = self._chance.choice([*self._kinds, "remove"])
        key = self._chance.choice(sorted(self._good))
        if kind == "remove":
            left = {name: data for name, data in self._good.items() if name != key}
            return Mutation(kind, (key,), left)
        changed = self._kinds[kind](key, self._good[key])
        return Mutation(kind, (key, *changed), self._good | changed)

    def _flip(self, key: str, data: bytes) -> Objects:
        spoilt = bytearray(data)
        spoilt[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        return {key: bytes(spoilt)}

    def _swap(self, key: str, data: bytes) -> Objects:
        others = sorted(name for name in self._good if self._good[name] != data)
        other = self._chance.choice(others)
        return {key: self._good[other], other: data}

    def _duplicate(self, key: str, data: bytes) -> Objects:
        """The object once more: in the place of another, or under a name that nobody has."""
        other = self._chance.choice(sorted(self._good.keys() - {key, MARK}))
        if self._chance.random() < 0.5:
            folder, _, name = other.rpartition("/")
            other = f"{folder}/{digest_bytes(self._chance.randbytes(9))}.{name.partition('.')[2]}"
        return {other: data}


@dataclass
class World:
    """A store, a fresh live directory for each look at it, and what the store held when good."""

    folder: Path
    patch: pytest.MonkeyPatch
    good: Objects = field(default_factory=dict)
    contents: dict[str, dict[str, str]] = field(default_factory=dict)
    """The digest of every entry by bundle and path, as they were pushed."""
    trust: str = "store"
    looks: int = 0

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def bundles(self, keys: Iterable[str]) -> list[str]:
        """The bundles that objects are of; all of them for what is of none."""
        named = {key.split("/")[1] for key in keys if key != MARK}
        return sorted(named or self.contents)

    def verify(self) -> bool:
        """Whether verify names something that is not as it should be."""
        try:
            found = cachesvc.verify(store=self.store, trust=self.trust)
        except cachesvc.IntegrityError:
            return True
        return bool(found.problems or found.orphans)

    def pull(self, name: str) -> tuple[bool, dict[str, str]]:
        """Whether a pull into an empty live directory complains; what then lies in it."""
        self.looks += 1
        home = self.folder / "homes" / str(self.looks)
        self.patch.setenv("TCCACHE_HOME", str(home))
        before = objects_of(self.store)
        try:
            complains = bool(self.pulled(name).notes)
        except (cachesvc.IntegrityError, cachesvc.UntrustedError):
            complains = True
        found = dict(self.digests(home))
        assert objects_of(self.store) == before
        assert sorted(os.listdir(self.folder)) == ["homes", "key.pub", "store", "tmp"]
        assert not os.listdir(self.folder / "tmp")
        return complains, found

    def pulled(self, name: str) -> cachesvc.Pulled:
        return cachesvc.pull(name, store=self.store, trust=self.trust, environment=ENVIRONMENT)

    def digests(self, home: Path) -> Iterator[tuple[str, str]]:
        """The digests of all files in a live directory as entries have them, records left out."""
        for path, data in objects_of(home).items():
            live, path = path.split("/", 2)[1:]  # behind `live`, one for each that is trusted
            assert live.startswith(ENVIRONMENT[:16])
            if os.path.dirname(path) != ".tccache":
                yield path, digest_bytes(relocate(data, path) if is_group(path) else data)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The golden store, with another live segment beside the one of its larger bundle."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("fsync", "fdatasync"):  # no power fails here, and each costs more than a pull
        monkeypatch.setattr(os, name, lambda descriptor: None)
    world = World(tmp_path, monkeypatch)
    store = DirectoryStore(world.store)
    GOLDEN["write"](store)
    world.contents = GOLDEN["digests"]()
    data = random.Random(2).randbytes(4000)
    push_beside(store, "triton/BESIDE/kernel.cubin", data)
    world.contents["gpt"]["triton/BESIDE/kernel.cubin"] = digest_bytes(data)
    (tmp_path / "key.pub").write_bytes(
        KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    world.good = objects_of(world.store)
    return world


@pytest.fixture
def signed(world: World) -> World:
    """The same store with a signature beside each manifest, trusted by its key alone."""
    for key, data in world.good.items():
        if key.startswith("bundles/") and key.endswith(".json"):
            (world.store / key).with_suffix(".sig").write_bytes(sign(data, [SIGNER]))
    world.good = objects_of(world.store)
    world.trust = str(world.folder / "key.pub")
    return world


def push_beside(
    store: DirectoryStore, path: str, data: bytes, created: str = "2025-01-03T00:00:00.000000Z"
) -> None:
    """Publishes as a process does that has seen nothing of what others push at the same time."""
    (bundle,) = Repository(store).bundles("gpt")
    address = bundle.address
    facts = Facts(address, GOLDEN["ENVIRONMENT"], GOLDEN["MODEL"], created, "0" * 32)
    source = GOLDEN["Source"](path, len(data), lambda: io.BytesIO(data))
    draft = Draft(unit_key(path.split("/")), (source,), Origin(created, address.model))
    reading = Reading(address, ())
    publish(Repository(store), facts, reading, [draft], Capabilities(unchecked=True))


def judge(world: World, mutation: Mutation) -> str:
    """What came of a mutation, in a word; fails where that is none of what is promised."""
    put(world.store, mutation.objects)
    said = world.verify()
    outcomes = set()
    for name in world.bundles(mutation.touched):
        good = world.contents[name]
        complains, found = world.pull(name)
        assert found.items() <= good.items(), f"{name} holds what was never pushed: {mutation}"
        if complains:
            outcomes.add("refused")
        elif found != good:
            outcomes.add("miss")
    if mutation.objects == world.good or (mutation.touched[0] == MARK and not outcomes):
        return "same"  # such as a mark with a space more
    assert said, f"verify does not see {mutation.kind} of {mutation.touched}"
    if "refused" in outcomes:
        return "refused"
    if "miss" in outcomes:
        assert mutation.kind == "remove", f"{mutation.kind} of {mutation.touched} goes unsaid"
        assert mutation.touched[0].endswith(".json")
        return "miss"
    return "unread"  # an object that no reader needs: of a superseded segment, or of none


def count(world: World, tries: int, seed: int) -> None:
    """Judges so many mutations; each kind and each outcome is among them often enough to count."""
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    mutator = Mutator(world.good, seed)
    for _ in range(tries):
        mutation = mutator.mutation()
        kinds[mutation.kind] += 1
        outcomes[judge(world, mutation)] += 1
    assert len(kinds) == 7
    assert min(kinds.values()) > tries / 14, kinds
    assert outcomes["refused"] > tries / 2, outcomes
    assert min(outcomes["miss"], outcomes["unread"]) > tries / 50, outcomes


def test_the_good_store(world: World) -> None:
    """Without a mutation nothing is named and every byte arrives: what is noticed is the change."""
    assert not world.verify()
    for name, good in world.contents.items():
        assert world.pull(name) == (False, good)


def test_the_good_store_signed(signed: World) -> None:
    """So it is with signatures, and the key that made them."""
    test_the_good_store(signed)
    assert sum(key.endswith(".sig") for key in signed.good) == 4


@pytest.mark.parametrize("tries", quick_and_slow(500, 1_000))
def test_mutations_of_a_signed_store(signed: World, tries: int) -> None:
    """However an object is changed, cut, exchanged, removed or copied, verify names it, a pull
    refuses it or misses it cleanly, and no byte that was not pushed reaches a live directory."""
    count(signed, tries, seed=6)


@pytest.mark.parametrize("tries", quick_and_slow(25, 1_000))
def test_mutations_of_a_trusted_store(world: World, tries: int) -> None:
    """So it is without signatures."""
    if tries > 100:
        count(world, tries, seed=7)
    else:
        mutator = Mutator(world.good, seed=7)
        assert {judge(world, mutator.mutation()) for _ in range(tries)} >= {"refused", "unread"}


@pytest.mark.parametrize("tries", quick_and_slow(10, 150))
def test_mutations_of_a_live_bundle(signed: World, tries: int) -> None:
    """A start that has everything in place meets a spoilt store: what lies there stays good."""
    mutator = Mutator(signed.good, seed=8)
    home = signed.folder / "homes" / "kept"
    signed.patch.setenv("TCCACHE_HOME", str(home))
    for _ in range(tries):
        put(signed.store, signed.good)
        signed.pulled("gpt")
        put(signed.store, mutator.mutation().objects)
        with suppress(cachesvc.IntegrityError, cachesvc.UntrustedError):
            signed.pulled("gpt")
        assert dict(signed.digests(home)) == signed.contents["gpt"]


@pytest.mark.parametrize("how", ["unsigned", "by another key", "of another manifest", "no object"])
def test_a_forged_segment(signed: World, how: str) -> None:
    """A segment that is right in all its digests, younger than all others and superseding them,
    counts for nothing without the key: nothing of it arrives, and all that was there does."""
    store = DirectoryStore(signed.store)
    push_beside(store, "triton/BESIDE/kernel.cubin", b"evil", created="2999-01-01T00:00:00.000000Z")
    (forged,) = (k for k in objects_of(signed.store).keys() - signed.good.keys() if k[-1] == "n")
    old = next(data for key, data in signed.good.items() if key.endswith(".sig"))
    other = SigningKey("ab" * 32, Ed25519PrivateKey.from_private_bytes(b"o" * 32))
    signature = {
        "unsigned": None,
        "by another key": sign(store_bytes(signed, forged), [other]),
        "of another manifest": old,
        "no object": b"[" * 5000,
    }[how]
    if signature is not None:
        (signed.store / forged).with_suffix(".sig").write_bytes(signature)
    complains, found = signed.pull("gpt")
    assert complains
    assert found == signed.contents["gpt"]
    assert signed.verify()


def store_bytes(world: World, key: str) -> bytes:
    return (world.store / key).read_bytes()
