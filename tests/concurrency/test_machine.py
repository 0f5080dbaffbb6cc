"""Pushers, readers, janitors and vandals in any order, against what plain dictionaries say."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.errors import IntegrityError, StoreError
from cachesvc.core.manifest import Origin
from cachesvc.core.merge import fewest_packs, merge
from cachesvc.core.requirement import Capabilities
from cachesvc.core.trust import EVERYONE, Trust
from cachesvc.repository import publish as publishing
from cachesvc.repository.grace import GRACE_S
from cachesvc.repository.keys import SigningKey
from cachesvc.repository.listing import MANIFEST, PACK, SIGNATURE, object_key
from cachesvc.repository.policy import Policy
from cachesvc.repository.publish import Draft, Facts, Publication, publish, unite
from cachesvc.repository.repository import PackMissing, Reading, Repository
from cachesvc.start.collect import collect_in
from cachesvc.start.inspect import remove
from cachesvc.start.verify import verify
from cachesvc.store.contract import Store
from cachesvc.store.faulty import Fault, Faulty
from tests.repository.clocked import ENVIRONMENT, HOUR, LATE, Clocked, new_key, write_segment
from tests.repository.conftest import source

from .shelf import Dict, Hurt, Shelf, Version, View, best

ADDRESSES = tuple(Address(name, "any", ENVIRONMENT.digest) for name in ("gpt", "llama"))
HOST = Capabilities()
DONE: Counter[str] = Counter()

addresses = st.sampled_from(ADDRESSES)
signings = st.sampled_from([(), (), (0,), (1,), (0, 1)])
trusts = st.sampled_from([None, None, 0, 1])
growths = st.sampled_from([1, 1, 1, 2, 0, -1])
units = st.dictionaries(
    st.sampled_from(["triton/K", "triton/L", "triton/M", "triton/N"]),
    growths,
    min_size=1,
    max_size=4,
)
limits = st.sampled_from([publishing.MERGE_LIMIT_BYTES, publishing.MERGE_LIMIT_BYTES, 0])
seconds = st.sampled_from([HOUR, GRACE_S / 2, LATE, LATE])
failures = st.sampled_from(["before", "after"])


class Look:
    """What a pusher saw, and what it should have seen."""

    def __init__(
        self, reading: Reading, held: View, signing: tuple[int, ...], at: datetime
    ) -> None:
        self.reading = reading
        self.held = held
        self.signing = signing
        self.at = at


class Machine(RuleBasedStateMachine):
    """One store, two bundles, two keys, and a clock that goes on when somebody says so."""

    looks = Bundle("looks")
    folder: Path
    keys: tuple[SigningKey, ...]

    @initialize()
    def begin(self) -> None:
        self.inner = Dict()
        self.store = Clocked(self.inner)
        self.shelf = Shelf()
        self.packed: dict[str, dict[str, bytes]] = {}
        self.clock = 0
        self.changed = set(ADDRESSES)
        self.looked: list[Look] = []
        self.promised: dict[tuple[Address, int], View] = {}
        self.trusts = (EVERYONE, *(Trust(frozenset({key.public})) for key in self.keys))

    # What people do.

    @rule(address=addresses, units=units, signing=signings, trust=trusts, limit=limits)
    def push(
        self,
        *,
        address: Address,
        units: dict[str, int],
        signing: tuple[int, ...],
        trust: int | None,
        limit: int,
    ) -> None:
        """A push that looks, and writes at once."""
        self.write(self.look(address, signing, trust), address, units, limit=limit)

    @rule(
        address=addresses,
        units=units,
        signing=signings,
        number=st.integers(1, 4),
        failure=failures,
        verb=st.sampled_from(["put", "put", "put", "stat", "fetch"]),
    )
    def push_and_die(
        self,
        *,
        address: Address,
        units: dict[str, int],
        signing: tuple[int, ...],
        number: int,
        failure: Any,
        verb: Any,
    ) -> None:
        """A push that comes to one of its requests, or through it, and no further."""
        look = self.look(address, signing, None)
        faulty = Faulty(self.store, [Fault(verb, failure, number, 1 << 30)])
        self.write(look, address, units, store=faulty)

    @rule(address=addresses, units=units, more=units, signing=signings, other=signings)
    def push_at_once(
        self,
        *,
        address: Address,
        units: dict[str, int],
        more: dict[str, int],
        signing: tuple[int, ...],
        other: tuple[int, ...],
    ) -> None:
        """Two pushers that see the same, and write one after the other."""
        seen = self.look(address, signing, None), self.look(address, other, None)
        self.write(seen[0], address, units)
        self.write(seen[1], address, more)

    @rule(target=looks, address=addresses, signing=signings, trust=trusts)
    def look_only(
        self, address: Address, signing: tuple[int, ...], trust: int | None
    ) -> tuple[Address, Look]:
        """The beginning of a push that will write later, beside others that do."""
        return address, self.look(address, signing, trust)

    @rule(look=consumes(looks), units=units, limit=limits)
    def push_late(self, look: tuple[Address, Look], units: dict[str, int], limit: int) -> None:
        """The end of a push that looked a while ago; what moved meanwhile is looked at again."""
        address, seen = look
        self.write(seen, address, units, limit=limit)

    @rule(address=addresses, signing=signings)
    def unite(self, address: Address, signing: tuple[int, ...]) -> None:
        """A janitor merges what may be merged."""
        repository = self.repository(signing)
        reading = self.reading(address, repository)
        self.clock += 1
        facts = Facts(address, ENVIRONMENT, Components(), self.now(), f"{self.clock:032x}")
        with self.writing(address, {}, signing), self.damage_stops(address):
            unite(repository, facts, reading)

    @rule(trust=trusts, seconds=seconds)
    def collect(self, trust: int | None, seconds: float) -> None:
        """Time goes on; then a janitor of some trust deletes what nobody needs any more."""
        self.store.wait(seconds)
        repository = Repository(self.store, self.trust(trust))
        assert collect_in(repository, Policy(), GRACE_S).failure is None
        self.note_collected()

    @rule(trust=trusts, seconds=seconds, number=st.integers(1, 5), failure=failures)
    def collect_and_die(self, trust: int | None, seconds: float, number: int, failure: Any) -> None:
        """A janitor that is killed at one of its deletions, or right after it."""
        self.store.wait(seconds)
        faulty = Faulty(self.store, [Fault("delete", failure, number, 1 << 30)])
        collect_in(Repository(faulty, self.trust(trust)), Policy(), GRACE_S)
        self.note_collected()

    @rule(address=addresses, signing=st.sampled_from([(), (1,)]))
    def lie(self, address: Address, signing: tuple[int, ...]) -> None:
        """Somebody writes a segment that gives itself out for all that is there."""
        self.clock += 1
        version = Version("triton/K", self.store.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"), 1)
        files = {path.rpartition("/")[2]: data for path, data in version.contents.items()}
        older = {written.name for written in self.shelf.at(address)}
        keys = self.signing(signing)
        with self.writing(address, {version.key: version}, signing, older):
            write_segment(
                self.store,
                {version.key: files},
                address=address,
                supersedes=older,
                keys=keys,
                nonce=f"{self.clock:032x}",
            )
        self.forget(address, [n for n, t in enumerate(self.trusts) if self.is_for(t, keys)])

    @rule(address=addresses)
    def remove(self, address: Address) -> None:
        """Somebody removes a bundle, and whoever pushed to it loses it."""
        if self.shelf.at(address):
            remove(str(address), store=self.store)
            self.note_gone()
            self.forget(address)

    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        """Somebody with a copy of the store puts a segment back as it once was."""
        if not self.packed:
            return
        name = data.draw(st.sampled_from(sorted(self.packed, key=self.order)))
        for key, content in self.packed[name].items():
            self.store.put(key, content)
        self.shelf.there[name] = self.shelf.known[name]
        self.changed.add(self.shelf.known[name].address)

    @rule(data=st.data(), how=st.sampled_from(["manifest", "pack", "gone", "signature", "wrong"]))
    def damage(self, data: st.DataObject, how: Hurt) -> None:
        """Somebody damages one object of a segment."""
        names = [written.name for written in self.shelf.there.values() if self.can_be(written, how)]
        if not names:
            return
        name = data.draw(st.sampled_from(sorted(names, key=self.order)))
        address = self.shelf.there[name].address
        suffix = {"manifest": MANIFEST, "pack": PACK, "gone": PACK}.get(how, SIGNATURE)
        key = object_key(address, name, suffix)
        if how == "gone":
            del self.inner.held[key]
        else:
            self.inner.held[key] = damaged(self.inner.held[key], how)
        self.shelf.hurt(name, how)
        self.forget(address)

    @rule()
    def verify(self) -> None:
        """Who looks finds just what is damaged."""
        found = verify(store=self.store).problems
        hurt = [written.name for written in self.shelf.there.values() if written.hurt]
        assert len(found) == len(hurt), found
        assert all(any(name in problem for problem in found) for name in hurt)

    @rule()
    def repair(self) -> None:
        """What no reader can ever use goes; a signature that is wrong stays to be looked at."""
        done = verify(store=self.store, repair=True)
        assert done.failure is None
        for written in list(self.shelf.there.values()):
            if written.hurt == "signature":
                plain = replace(written, hurt=None, signers=frozenset())
                self.shelf.there[written.name] = plain
            elif written.hurt not in (None, "wrong"):
                assert object_key(written.address, written.name, MANIFEST) not in self.inner.held
        self.note_gone()
        assert len(done.problems) == sum(bool(w.hurt) for w in self.shelf.there.values())

    # What must be so after each of it.

    @invariant()
    def every_manifest_has_its_pack(self) -> None:
        for written in self.shelf.there.values():
            key = object_key(written.address, written.name, PACK)
            assert (key in self.inner.held) == (written.hurt != "gone")

    @invariant()
    def readers_find_what_they_should(self) -> None:
        for address in self.changed:
            for number, trust in enumerate(self.trusts):
                self.look_as_a_reader(address, number, trust)
        self.changed = set()
        DONE["steps"] += 1

    def look_as_a_reader(self, address: Address, number: int, trust: Trust) -> None:
        repository = Repository(self.store, trust)
        bundle = repository.bundle(address)
        reading = Reading(address, ()) if bundle is None else repository.read(bundle)
        union = merge(unit for segment in reading.segments for unit in segment.units)
        view = self.shelf.view(address, trust)
        shown = {key: (unit.origin.created, len(unit.entries)) for key, unit in union.items()}
        assert shown == {key: (each.created, each.files) for key, each in view.items()}
        promised = self.promised.get((address, number), {})
        assert all(view[key].rank >= version.rank for key, version in promised.items())
        sure = self.shelf.sure(address, trust)
        self.promised[address, number] = best([promised, sure])
        expected = {path: data for each in view.values() for path, data in each.contents.items()}
        try:
            assert self.contents(repository, reading) == expected
        except IntegrityError:
            assert not all(written.has_its_pack for written in self.shelf.read(address, trust))
        DONE["readings"] += 1

    def contents(self, repository: Repository, reading: Reading) -> dict[str, bytes]:
        """The bytes of the union, as a pull brings them."""
        union = merge(unit for segment in reading.segments for unit in segment.units)
        found: dict[str, bytes] = {}
        for segment, brought in fewest_packs(reading.segments, union).parts:
            file = self.folder / "pack"
            repository.fetch(segment, file)
            entries = [entry for unit in brought for entry in unit.entries]
            for entry, stream in repository.entries(segment, file, entries):
                found[entry.path] = stream.read()
        return found

    # How it is done.

    def look(self, address: Address, signing: tuple[int, ...], trust: int | None) -> Look:
        repository = self.repository(signing, trust)
        read = self.shelf.read(address, repository.trust, signed=True)
        held = best(w.units for w in read if repository.signing <= w.known_signers)
        look = Look(self.reading(address, repository), held, signing, self.store.now())
        self.looked.append(look)
        return look

    def write(
        self,
        look: Look,
        address: Address,
        units: dict[str, int],
        *,
        limit: int = publishing.MERGE_LIMIT_BYTES,
        store: Store | None = None,
    ) -> None:
        self.clock += 1
        there = self.shelf.view(address, EVERYONE)
        made = {key: grown(there.get(key), growth) for key, growth in units.items()}
        fresh = {
            key: Version(key, self.now(), files)
            for key, files in made.items()
            if key not in look.held or look.held[key].files < files
        }
        repository = Repository(store or self.store, EVERYONE, self.signing(look.signing))
        facts = Facts(address, ENVIRONMENT, Components(), self.now(), f"{self.clock:032x}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publishing, "MERGE_LIMIT_BYTES", limit)
            with self.writing(address, fresh, look.signing) as written:
                drafts = [draft(Version(key, self.now(), files)) for key, files in made.items()]
                try:
                    publication = publish(repository, facts, look.reading, drafts, HOST)
                    written.append(publication.segment)
                    assert publication.added == len(fresh)
                    self.note_damage(publication)
                except PackMissing:
                    again = self.look(address, look.signing, None)
                    assert again.reading.segments != look.reading.segments
                    DONE["looked again"] += 1
                    self.write(again, address, units, limit=limit, store=store)
                except StoreError:
                    assert store is not None
                    DONE["died"] += 1

    @contextmanager
    def writing(
        self,
        address: Address,
        fresh: View,
        signing: tuple[int, ...],
        lied: Collection[str] = (),
    ) -> Iterator[list[str | None]]:
        """Takes note of the segment that was written, if one was."""
        told: list[str | None] = []
        before = set(self.manifests())
        yield told
        new = [name for name in self.manifests() if name not in before]
        if new and new[0] not in self.shelf.known:
            (name,) = new
            prefix = f"{address.prefix}{name}"
            own = {k: data for k, data in self.inner.held.items() if k.startswith(prefix)}
            older = set(json.loads(own[f"{prefix}.{MANIFEST}"])["supersedes"])
            signers = frozenset(key.public for key in self.signing(signing))
            self.shelf.add(address, name, fresh, signers=signers, older=older, lied=lied)
            self.packed[name] = own
            DONE["segments"] += 1
        assert told in ([], new or [None], [None]), told
        self.changed.add(address)

    @contextmanager
    def damage_stops(self, address: Address) -> Iterator[None]:
        """Nobody merges what is damaged: a janitor that comes upon it says so."""
        try:
            yield
        except IntegrityError:
            assert not all(written.has_its_pack for written in self.shelf.at(address))
            DONE["stopped by damage"] += 1

    def note_damage(self, publication: Publication) -> None:
        """A push leaves what is damaged beside, and names it."""
        for warning in publication.warnings:
            (name,) = (name for name in self.shelf.there if f"segment {name[:12]} is" in warning)
            assert not self.shelf.there[name].has_its_pack
            assert name not in publication.superseded
            DONE["left beside"] += 1

    def note_gone(self) -> None:
        left = set(self.manifests())
        for name in [name for name in self.shelf.there if name not in left]:
            self.changed.add(self.shelf.there.pop(name).address)
            DONE["gone"] += 1

    def note_collected(self) -> None:
        """A janitor takes nothing but what is held elsewhere, and was not needed for long."""
        before = dict(self.shelf.there)
        self.note_gone()
        gone = before.keys() - self.shelf.there.keys()
        assert all(self.shelf.is_held_without(before[name]) for name in gone)
        self.looked = [
            look for look in self.looked if (self.store.now() - look.at).total_seconds() < GRACE_S
        ]
        for look in self.looked:
            assert gone.isdisjoint(segment.name for segment in look.reading.segments)

    def forget(self, address: Address, numbers: Sequence[int] = (0, 1, 2)) -> None:
        """What was promised of a bundle is not any more."""
        self.changed.add(address)
        for number in numbers:
            self.promised.pop((address, number), None)

    def is_for(self, trust: Trust, keys: Sequence[SigningKey]) -> bool:
        """Whether who trusts so trusts what these keys have signed."""
        return trust.keys is None or any(key.public in trust.keys for key in keys)

    def can_be(self, written: Any, how: Hurt) -> bool:
        return not written.hurt and (how not in ("signature", "wrong") or bool(written.signers))

    def manifests(self) -> list[str]:
        names = (key.rpartition("/")[2] for key in self.inner.held if key.endswith(f".{MANIFEST}"))
        return [name.partition(".")[0] for name in names]

    def order(self, name: str) -> tuple[Address, str]:
        """One that is the same in every run, as names are not."""
        written = self.shelf.known[name]
        return str(written.address), max(each.created for each in written.units.values())

    def reading(self, address: Address, repository: Repository) -> Reading:
        bundle = repository.bundle(address)
        return Reading(address, ()) if bundle is None else repository.read(bundle, signed=True)

    def repository(self, signing: tuple[int, ...], trust: int | None = None) -> Repository:
        return Repository(self.store, self.trust(trust), self.signing(signing))

    def signing(self, numbers: tuple[int, ...]) -> tuple[SigningKey, ...]:
        return tuple(self.keys[number] for number in numbers)

    def trust(self, number: int | None) -> Trust:
        return EVERYONE if number is None else Trust(frozenset({self.keys[number].public}))

    def now(self) -> str:
        return f"2025-01-01T00:{self.clock // 60:02}:{self.clock % 60:02}.000000Z"


def grown(held: Version | None, growth: int) -> int:
    """How many files a unit has that has grown, or shrunk, since others pushed it."""
    return max((held.files if held else 0) + growth, 1)


def draft(version: Version) -> Draft:
    sources = tuple(source(path, data) for path, data in version.contents.items())
    return Draft(version.key, sources, Origin(version.created, "any"))


def damaged(data: bytes, how: Hurt) -> bytes:
    if how == "signature":
        return b"none"
    if how == "wrong":
        told = json.loads(data)
        for signature in told["signatures"]:
            signature["signature"] = signature["signature"][::-1]
        return json.dumps(told).encode()
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[type[Machine]]:
    """The machine, with keys and a place for packs; nothing was done yet."""
    DONE.clear()
    keys = tuple(new_key(tmp_path, name) for name in "AB")
    with tempfile.TemporaryDirectory() as folder:
        yield type("Repositories", (Machine,), {"folder": Path(folder), "keys": keys})
    shutil.rmtree(tmp_path, ignore_errors=True)


def play(machine: type[Machine], runs: int, steps: int) -> None:
    """The same runs each time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_store_is_what_plain_dictionaries_say(machine: type[Machine]) -> None:
    """Pushes, also late, dying and merging ones, collections, removals, damage and its repair:
    every reader finds just what it should."""
    play(machine, 20, 25)
    assert Counter(steps=300, readings=600, segments=150, gone=20, died=1) <= DONE


@pytest.mark.slow
def test_a_store_is_what_plain_dictionaries_say_for_long(machine: type[Machine]) -> None:
    """The same, with many more and longer runs."""
    play(machine, 150, 50)
    assert Counter(steps=4000, readings=8000, segments=1500, gone=500, died=80) <= DONE
    assert min(DONE["looked again"], DONE["left beside"], DONE["stopped by damage"]) > 0
