"""verify names what is wrong with a store, and its repair deletes what can never be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import AccessDenied
from cachesvc.repository.listing import object_key
from cachesvc.start.keys import make_key
from cachesvc.start.pull import pull
from cachesvc.start.push import push
from cachesvc.start.verify import verify
from cachesvc.store.contract import Store
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.faulty import Failure, Fault, Faulty
from cachesvc.store.wrapper import Wrapper
from tests.repository.clocked import ADDRESS, LATE, Clocked, new_key, write_segment

K = {"extra/tool/k": {"a": b"1"}}


@pytest.fixture
def store(tmp_path: Path) -> Clocked:
    return Clocked(DirectoryStore(tmp_path / "store"))


def key_of(store: Store, kind: str) -> str:
    """The one object of this kind."""
    (found,) = (stat.key for stat in store.list("bundles/") if stat.key.endswith(f".{kind}"))
    return found


def objects(store: Store) -> set[str]:
    return {stat.key for stat in store.list()}


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "a manifest is flipped": ("json", flipped),
    "a manifest is cut": ("json", lambda data: data[:-1]),
    "a manifest is empty": ("json", lambda _: b""),
    "a pack is gone": ("tar.zst", lambda _: None),
    "a pack is flipped": ("tar.zst", flipped),
    "a pack is cut": ("tar.zst", lambda data: data[:-1]),
    "a pack is longer": ("tar.zst", lambda data: data + b"1"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_repaired(store: Clocked, tmp_path: Path, damage: str) -> None:
    """A repair deletes all of the segment, the manifest first; then the next push, which would
    have added nothing to it, writes it again."""
    file = tmp_path / "tree" / "k"
    file.parent.mkdir()
    file.write_text("kernel")
    push("m", store=store, extra={"tool": file.parent})
    kind, change = DAMAGE[damage]
    key = key_of(store, kind)
    data = change(store.get(key, limit=1 << 20) or b"")
    store.delete(key)
    if data is not None:
        store.put(key, data)
    store.deleted.clear()
    planned = verify(store=store, repair=True, dry_run=True)
    assert (len(planned.problems), len(planned.repaired), store.deleted) == (1, 1, [])
    assert verify(store=store).problems == planned.problems
    done = verify(store=store, repair=True)
    assert (done.ok, done.repaired, done.failure) == (True, planned.repaired, None)
    assert store.deleted[0].endswith(".json")
    assert objects(store) == {"tccache.json"}
    assert push("m", store=store, extra={"tool": file.parent}).publication.added == 1
    assert verify(store=store).ok
    assert pull("m", store=store, extra={"tool": tmp_path / "to"}).found


def test_what_a_damaged_segment_superseded_serves_again(store: Clocked) -> None:
    """A repair before a collection brings back what is still there."""
    first = write_segment(store, K)
    second = write_segment(store, {**K, "extra/tool/l": {"a": b""}}, supersedes=[first])
    store.put(object_key(ADDRESS, second, "tar.zst"), b"garbage")
    assert verify(store=store, repair=True).ok
    assert {key for key in objects(store) if key.endswith("json")} == {
        object_key(ADDRESS, first, "json")
    }


def test_what_is_not_trusted_stays(store: Clocked, tmp_path: Path) -> None:
    """It is a problem to who asks, and may be somebody else's treasure."""
    mine = make_key(tmp_path / "mine").file
    write_segment(store, K)
    write_segment(store, {"extra/tool/l": {"a": b""}}, keys=[new_key(tmp_path, "other")])
    before = objects(store)
    done = verify(store=store, trust=f"{mine}.pub", repair=True)
    assert (len(done.problems), done.repaired) == (2, ())
    assert objects(store) == before
    assert verify(store=store).ok


def test_what_a_newer_version_wrote_stays(store: Clocked) -> None:
    """Manifests and signatures of other formats are refused by name, and deleted by nobody."""
    name = write_segment(store, K)
    manifest = json.loads(store.get(object_key(ADDRESS, name, "json"), limit=1 << 20) or b"")
    newer = json.dumps({**manifest, "format": 2}).encode()
    store.put(object_key(ADDRESS, digest_bytes(newer), "json"), newer)
    store.put(object_key(ADDRESS, name, "sig"), b'{"format":2}')
    before = objects(store)
    done = verify(store=store, repair=True)
    assert (len(done.problems), done.repaired) == (2, ())
    assert all("has format 2" in problem for problem in done.problems)
    assert objects(store) == before


def test_a_segment_of_another_address_stays(store: Clocked) -> None:
    """It is what its name says, only not where it belongs: that is for a person to decide."""
    name = write_segment(store, K)
    for kind in ("tar.zst", "json"):
        key = object_key(ADDRESS, name, kind)
        store.put(key.replace("/gpt/", "/copy/"), store.get(key, limit=1 << 20) or b"")
    done = verify(store=store, repair=True)
    assert ["says that it belongs to" in problem for problem in done.problems] == [True]
    assert done.repaired == ()


def test_no_signature_in_a_signatures_place(store: Clocked) -> None:
    """Only that object goes; the segment is then what it is without one."""
    name = write_segment(store, K)
    signature = object_key(ADDRESS, name, "sig")
    store.put(signature, b"garbage")
    done = verify(store=store, repair=True)
    assert store.deleted == [signature]
    assert (done.ok, verify(store=store).segments) == (True, 1)


def test_a_wrong_signature_is_named(store: Clocked, tmp_path: Path) -> None:
    """Also where no signature is asked for. Anyone can write one, so it is no reason to delete."""
    key = new_key(tmp_path, "key")
    name = write_segment(store, K, keys=[key])
    place = object_key(ADDRESS, name, "sig")
    data = json.loads(store.get(place, limit=1 << 20) or b"")
    text = data["signatures"][0]["signature"]
    data["signatures"][0]["signature"] = ("1" if text[0] == "0" else "0") + text[1:]
    store.put(place, json.dumps(data).encode())
    done = verify(store=store, repair=True)
    assert [f"holds a wrong signature by {key.public}" in text for text in done.problems] == [True]
    assert done.repaired == ()


def test_old_orphans_go_with_a_repair(store: Clocked) -> None:
    """Young ones may be those of a push at work, and none is a problem."""
    place = object_key(ADDRESS, "f" * 64, "tar.zst")
    store.put(place, b"pack")
    done = verify(store=store, repair=True)
    assert (done.ok, done.orphans, done.repaired) == (True, (place,), ())
    store.wait(LATE)
    done = verify(store=store, repair=True)
    assert (done.ok, done.orphans, store.deleted) == (True, (), [place])


def test_objects_of_unknown_names_are_named(store: Clocked) -> None:
    """And left alone; the mark and leases are a store's own."""
    write_segment(store, K)
    for name in ("tccache.json", "leases/x"):
        store.put(name, b'{"format":1}')
    strange = (f"{ADDRESS.prefix}notes.txt", "bundles/x", "other/y")
    for name in strange:
        store.put(name, b"")
    done = verify(store=store, repair=True)
    assert set(done.unknown) == set(strange)
    assert (done.ok, done.marked, store.deleted) == (True, True, [])
    assert verify("gpt", store=store).unknown == ()


def test_a_store_without_a_mark_says_so(store: Clocked) -> None:
    """It is no problem: an empty store has none, and the next push writes it."""
    assert verify(store=store).marked
    write_segment(store, K)
    done = verify(store=store)
    assert (done.ok, done.marked) == (True, False)


@pytest.mark.parametrize("failure", ["denied", "after"])
def test_a_repair_that_fails_says_what_is_left(store: Clocked, failure: Any) -> None:
    """What was not deleted whole is still a problem, or an orphan that a later run deletes."""
    names = [write_segment(store, {f"extra/tool/{n}": {"a": b"1"}}) for n in "kl"]
    for name in names:
        store.put(object_key(ADDRESS, name, "tar.zst"), b"garbage")
    faulty = Faulty(store, [Fault("delete", failure, first=4)])
    done = verify(store=faulty, repair=True)
    assert done.failure is not None
    assert isinstance(done.failure, AccessDenied) == (failure == "denied")
    assert len(done.problems) == 1
    again = verify(store=store, repair=True)
    assert (again.ok, again.problems) == (True, ())
    store.wait(LATE)
    verify(store=store, repair=True)
    assert objects(store) == set()


class Moving(Wrapper):
    """A store whose janitor deletes a segment, the manifest first, while a pack is read."""

    gone = ""

    def _fetch(self, key: str, target: Any) -> int | None:
        if self.gone and key.endswith("tar.zst"):
            for kind in ("json", "tar.zst"):
                self.inner.delete(object_key(ADDRESS, self.gone, kind))
        return super()._fetch(key, target)


def test_a_janitor_at_work_is_no_damage(store: Clocked) -> None:
    """What looks wrong is looked at again: a segment that has gone away is no problem."""
    moving = Moving(store)
    moving.gone = write_segment(store, K)
    done = verify(store=moving)
    assert (done.ok, done.problems) == (True, ())


def test_a_read_that_went_wrong_once_is_no_damage(store: Clocked) -> None:
    """Nothing is deleted on the word of one transfer."""
    name = write_segment(store, K)
    failures: tuple[Failure, ...] = ("cut", "wrong")
    for failure, suffix in product(failures, (".tar.zst", ".json")):
        faulty = Faulty(store, [Fault("fetch", failure, suffix=f"{name}{suffix}")])
        done = verify(store=faulty, repair=True)
        assert (done.ok, done.segments, done.repaired) == (True, 1, ())


def test_no_more_is_repaired_than_was_agreed_to(store: Clocked) -> None:
    """What was damaged since a dry run stays a problem."""
    write_segment(store, K)
    write_segment(store, {"extra/tool/l": {"a": b"2"}})
    first, second = (s.key for s in store.list("bundles/") if s.key.endswith(".tar.zst"))
    _overwrite(store, first)
    agreed = verify(store=store, repair=True, dry_run=True)
    _overwrite(store, second)
    done = verify(store=store, repair=True, agreed=agreed)
    assert [item.segment in first for item in done.repaired] == [True]
    assert [second in problem for problem in done.problems] == [True]


def _overwrite(store: Store, key: str) -> None:
    store.delete(key)
    store.put(key, b"garbage")
