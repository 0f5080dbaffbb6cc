"""Reading: only what is what it says it is; everything else is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.address import Address
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError, StoreError, TccacheError
from cachesvc.repository import repository as module
from cachesvc.repository.listing import object_key
from cachesvc.repository.repository import PackMissing, Repository
from cachesvc.store.contract import Store
from cachesvc.store.faulty import Fault, Faulty


def _pushed(desk: Any) -> str:
    """The name of a segment in the store."""
    segment = desk.push(desk.draft("triton/K", a=b"1" * 500, b=b"2")).segment
    assert segment is not None
    return str(segment)


def _put(store: Store, key: str, data: bytes) -> None:
    store.delete(key)
    store.put(key, data)


def _object(store: Store, key: str) -> bytes:
    data = store.get(key, limit=1 << 20)
    assert data is not None
    return data


def test_nothing_there(desk: Any) -> None:
    """A store without the bundle is no error: the bundle is None, and there are none."""
    assert Repository(desk.store).bundle(desk.address) is None
    assert Repository(desk.store).bundles() == ()
    assert Repository(desk.store).bundles("gpt") == ()


def test_read(anywhere: Store, make_desk: Callable[..., Any]) -> None:
    """What was pushed is read by another process, under its name, with every byte."""
    desk = make_desk(anywhere)
    segment = _pushed(desk)
    (found,) = desk.read().segments
    assert found.name == segment
    assert found.manifest.address == desk.address
    assert desk.contents() == {"triton/K/a": b"1" * 500, "triton/K/b": b"2"}


def test_several_addresses(anywhere: Store, make_desk: Callable[..., Any]) -> None:
    """Bundles of one store are read each for itself, also those of names that begin alike."""
    environment = make_desk(anywhere).address.environment
    desks = [
        make_desk(anywhere, address=Address(name, "any", environment))
        for name in ("gpt", "gpt-2", "gpt2")
    ]
    for number, desk in enumerate(desks):
        desk.push(desk.draft("triton/K", a=bytes([number])))
    repository = Repository(anywhere)
    assert [b.address for b in repository.bundles()] == [desk.address for desk in desks]
    assert [b.address for b in repository.bundles("gpt")] == [desks[0].address]
    assert [desk.contents()["triton/K/a"] for desk in desks] == [b"\0", b"\1", b"\2"]


def test_a_manifest_under_another_address(desk: Any, make_desk: Callable[..., Any]) -> None:
    """A segment that was moved to another model's place is refused, though its bytes are right."""
    segment = _pushed(desk)
    other = make_desk(desk.store, address=Address("llama", "any", desk.address.environment))
    for kind in ("tar.zst", "json"):
        data = _object(desk.store, object_key(desk.address, segment, kind))
        desk.store.put(object_key(other.address, segment, kind), data)
    reading = other.read()
    assert reading.segments == ()
    (refused,) = reading.refused
    assert refused.segment == segment
    assert "says that it belongs to gpt/any/" in refused.reason


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data.replace(b"triton/K", b"triton/L"),
        lambda data: b"",
        lambda data: data + b" ",
    ],
    ids=["cut", "changed", "emptied", "longer"],
)
def test_a_manifest_of_other_bytes(desk: Any, spoil: Callable[[bytes], bytes]) -> None:
    """A manifest that is not what its name says is refused before it is looked into."""
    key = object_key(desk.address, _pushed(desk), "json")
    _put(desk.store, key, spoil(_object(desk.store, key)))
    reading = desk.read()
    assert reading.segments == ()
    assert reading.refused[0].reason == f"{key} does not have the digest that its name says"


def _under_its_digest(desk: Any, data: bytes) -> None:
    desk.store.put(object_key(desk.address, digest_bytes(data), "json"), data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "has format None"),
        (b'{"format":2}', "has format 2; this version reads format 1: update tccache"),
        (b'{"format":1}', "is not valid: environment: is missing; "),
        (b"[" * 100_000, "is not JSON"),
        (rb'{"format":1,"new":"\ud800"}', "is not JSON: it is not valid Unicode"),
    ],
)
def test_a_hostile_manifest_spoils_nothing(desk: Any, data: bytes, reason: str) -> None:
    """A manifest that is wrong under its right digest is named; the segments beside it are read."""
    segment = _pushed(desk)
    _under_its_digest(desk, data)
    reading = desk.read()
    assert [found.name for found in reading.segments] == [segment]
    assert reason in reading.refused[0].reason
    assert desk.contents()["triton/K/b"] == b"2"


def test_a_manifest_too_large(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest larger than any real one is refused before it is held in memory."""
    _pushed(desk)
    monkeypatch.setattr(module, "MAX_MANIFEST_BYTES", 100)
    assert "more than the 100 allowed" in desk.read().refused[0].reason


def test_a_manifest_that_went_away(desk: Any) -> None:
    """A segment deleted between listing and reading is neither read nor refused."""
    repository = Repository(desk.store)
    segment = _pushed(desk)
    bundle = repository.bundle(desk.address)
    assert bundle is not None
    desk.store.delete(object_key(desk.address, segment, "json"))
    reading = repository.read(bundle)
    assert (reading.segments, reading.refused) == ((), ())


def test_refused_segments_supersede_nothing(desk: Any) -> None:
    """Where a merged segment is refused, the older ones that it replaced are live again."""
    first = _pushed(desk)
    merged = desk.push(desk.draft("triton/L", a=b"3")).segment
    assert [s.name for s in desk.read().segments] == [merged]
    key = object_key(desk.address, merged, "json")
    _put(desk.store, key, b"{}")
    assert [s.name for s in desk.read().segments] == [first]


def test_superseded_segments_on_request(desk: Any) -> None:
    """Whoever checks a whole store reads the superseded segments too."""
    names = {_pushed(desk), desk.push(desk.draft("triton/L", a=b"3")).segment}
    repository = Repository(desk.store)
    bundle = repository.bundle(desk.address)
    assert bundle is not None
    assert {s.name for s in repository.read(bundle, superseded=True).segments} == names


def test_trouble_with_the_store_is_no_refusal(desk: Any) -> None:
    """A store that fails is told as such: a segment is never taken for absent or wrong."""
    _pushed(desk)
    desk.store = Faulty(desk.store, [Fault("fetch", "before")])
    with pytest.raises(StoreError):
        desk.read()


def test_a_missing_pack(desk: Any) -> None:
    """A manifest whose pack is gone is told apart, so that a reader can list again."""
    segment = _pushed(desk)
    desk.store.delete(object_key(desk.address, segment, "tar.zst"))
    with pytest.raises(PackMissing, match=f"{segment}.tar.zst is gone from .*store"):
        desk.contents()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
        lambda data: b"",
        lambda data: data + b"\0",
    ],
    ids=["cut", "flipped", "emptied", "longer"],
)
def test_a_pack_of_other_bytes(desk: Any, spoil: Callable[[bytes], bytes]) -> None:
    """A pack of another size or digest is refused before any of it is decoded."""
    key = object_key(desk.address, _pushed(desk), "tar.zst")
    _put(desk.store, key, spoil(_object(desk.store, key)))
    with pytest.raises(IntegrityError, match=f"{key} in .*store"):
        desk.contents()


def test_a_pack_that_is_too_large_is_not_fetched(desk: Any) -> None:
    """No more than the manifest says is taken from the store, whatever lies there."""
    key = object_key(desk.address, _pushed(desk), "tar.zst")
    size = len(_object(desk.store, key))
    _put(desk.store, key, bytes(1 << 20))
    with pytest.raises(IntegrityError, match=f"has 1048576 bytes, more than the {size} allowed"):
        desk.contents()


def test_swapped_packs(desk: Any, make_desk: Callable[..., Any]) -> None:
    """The pack of another segment is not this one's, though it is a good pack."""
    other = make_desk(desk.store, address=Address("llama", "any", desk.address.environment))
    key = object_key(desk.address, _pushed(desk), "tar.zst")
    pushed = other.push(other.draft("triton/K", a=b"3" * 500, b=b"4")).segment
    _put(desk.store, key, _object(desk.store, object_key(other.address, pushed, "tar.zst")))
    with pytest.raises(IntegrityError):
        desk.contents()


@pytest.mark.parametrize("failure", ["cut", "wrong"])
def test_a_store_that_lies_once(desk: Any, failure: Any) -> None:
    """Bytes that change on the way are refused, and right ones are taken at the next try."""
    _pushed(desk)
    desk.store = Faulty(desk.store, [Fault("fetch", failure, suffix=".tar.zst")])
    with pytest.raises(IntegrityError):
        desk.contents()
    assert desk.contents()["triton/K/b"] == b"2"


def test_no_room_for_a_pack(desk: Any, tmp_path: Path) -> None:
    """A pack that cannot be written here is told with the place and what to do."""
    _pushed(desk)
    (segment,) = desk.read().segments
    with pytest.raises(TccacheError, match=r"cannot write to .*nowhere/pack: .*TMPDIR"):
        Repository(desk.store).fetch(segment, tmp_path / "nowhere" / "pack")
