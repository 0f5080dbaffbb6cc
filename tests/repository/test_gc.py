"""What a store is rid of: nothing that anyone could still need, and all that nobody can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.address import Address
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import AccessDenied, IntegrityError, StoreError
from cachesvc.core.trust import EVERYONE, Trust
from cachesvc.repository import publish
from cachesvc.repository.gc import Outcome, Plan, carry_out, judge, plan
from cachesvc.repository.grace import MIN_GRACE_S, PUSH_S
from cachesvc.repository.keys import SigningKey
from cachesvc.repository.listing import object_key
from cachesvc.repository.policy import Policy
from cachesvc.repository.repository import Repository
from cachesvc.store.contract import Store
from cachesvc.store.faulty import Fault, Faulty
from cachesvc.store.streams import Source as Stored
from cachesvc.store.wrapper import Wrapper

from .clocked import ADDRESS, DAY, ENVIRONMENT, HOUR, LATE, Clocked, new_key, write_segment

K = {"triton/K": {"a": b"1"}}
KL = {**K, "triton/L": {"a": b"2"}}


@pytest.fixture
def store(anywhere: Store) -> Clocked:
    return Clocked(anywhere)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[SigningKey, ...]:
    folder = tmp_path_factory.mktemp("keys")
    return tuple(new_key(folder, name) for name in "AB")


def planned(store: Clocked, trust: Trust = EVERYONE, policy: Policy | None = None) -> Plan:
    """What a run at this moment would do."""
    repository, grace = Repository(store, trust), store.grace()
    judged = [
        judge(bundle, repository.read(bundle, superseded=True, signed=True), grace)
        for bundle in repository.bundles()
    ]
    return plan(judged, policy or Policy(), grace)


def collect(store: Clocked, trust: Trust = EVERYONE, policy: Policy | None = None) -> Outcome:
    return carry_out(planned(store, trust, policy), store, lambda _: None)


def left(store: Store) -> set[str]:
    """The names of the segments that are there, for short."""
    return {Path(stat.key).stem for stat in store.list() if stat.key.endswith(".json")}


def reasons(found: Plan) -> list[str]:
    return [item.reason for item in found.kept]


def test_superseded_segments_go_once_nobody_can_be_reading_them(
    store: Clocked, make_desk: Callable[..., Any]
) -> None:
    """What counts is the age of the segment that took the place, by the store's clock."""
    desk = make_desk(store)
    first = desk.push(desk.draft("triton/K", a=b"1"))
    store.wait(10 * DAY)
    second = desk.push(desk.draft("triton/L", a=b"2"))
    before = desk.contents()
    store.wait(LATE - 2)
    early = planned(store)
    assert early.deletions == ()
    assert reasons(early) == [f"its successor {second.segment[:12]} is younger than the grace time"]
    store.wait(2)
    done = collect(store)
    assert [(d.segment, d.cause) for d in done.deleted] == [(first.segment, "superseded")]
    assert store.deleted == [object_key(ADDRESS, first.segment, k) for k in ("json", "tar.zst")]
    assert left(store) == {second.segment}
    assert desk.contents() == before
    assert planned(store) == Plan()


def test_the_oldest_goes_first_and_each_manifest_before_its_pack(
    store: Clocked, make_desk: Callable[..., Any], keys: Any
) -> None:
    """So whatever is deleted when, readers see what they saw before, and find its packs."""
    names = []
    for number in range(4):
        units = {f"triton/{letter}": {"a": b"1"} for letter in "KLMN"[: number + 1]}
        names.append(write_segment(store, units, supersedes=names, keys=keys))
        store.wait(HOUR)
    store.wait(LATE)
    collect(store)
    wanted = [object_key(ADDRESS, n, k) for n in names[:3] for k in ("json", "sig", "tar.zst")]
    assert store.deleted == wanted
    assert left(store) == {names[3]}


@pytest.mark.parametrize(
    ("older", "newer", "goes"),
    [
        ("", "", True),
        ("", "A", True),
        ("A", "A", True),
        ("A", "AB", True),
        ("A", "", False),
        ("A", "B", False),
        ("AB", "A", False),
    ],
)
def test_a_signature_is_never_taken_away(
    store: Clocked, keys: tuple[SigningKey, ...], older: str, newer: str, goes: bool
) -> None:
    """A segment gives way only to one that all its signers have signed: who trusts one of them
    would be left with nothing, whoever the janitor trusts."""
    by_name = dict(zip("AB", keys, strict=True))
    first = write_segment(store, K, keys=[by_name[name] for name in older])
    store.wait(1)
    second = write_segment(store, KL, supersedes=[first], keys=[by_name[name] for name in newer])
    store.wait(LATE)
    found = planned(store)
    assert [d.segment for d in found.deletions] == ([first] if goes else [])
    assert goes or f"{second[:12]} is not signed by all who signed it" in reasons(found)[0]


def test_what_the_janitor_does_not_trust_supersedes_nothing(
    store: Clocked, keys: tuple[SigningKey, ...]
) -> None:
    """Unsigned, or signed by a key that is not trusted."""
    trust = Trust(frozenset({keys[0].public}))
    first = write_segment(store, K, keys=keys[:1])
    for foreign in ((), keys[1:]):
        store.wait(1)
        write_segment(store, KL, supersedes=[first], keys=foreign)
    store.wait(LATE)
    found = planned(store, trust)
    assert found.deletions == ()
    assert len([reason for reason in reasons(found) if "not signed" in reason]) == 1
    assert len([reason for reason in reasons(found) if "is not trusted here" in reason]) == 1


def test_rubbish_goes_where_it_is_asked_for(store: Clocked, keys: tuple[SigningKey, ...]) -> None:
    """Unsigned, signed by others, or by a key that is revoked: once older than the grace time. What
    is damaged is not: `verify --repair` looks into that."""
    trust = Trust(frozenset({keys[0].public}))
    good = write_segment(store, K, keys=keys[:1])
    foreign = {write_segment(store, KL, keys=by) for by in ((), keys[1:])}
    store.wait(LATE)
    young = write_segment(store, K)
    assert planned(store, trust).deletions == ()
    found = planned(store, trust, Policy(untrusted=True))
    assert {deletion.segment for deletion in found.deletions} == foreign
    assert {deletion.cause for deletion in found.deletions} == {"untrusted"}
    assert [kept.segment for kept in found.kept] == [young]
    assert planned(store, EVERYONE, Policy(untrusted=True)).deletions == ()
    assert collect(store, trust, Policy(untrusted=True)).failure is None
    assert {key.rpartition("/")[2].partition(".")[0] for key in left(store)} == {good, young}


def test_what_the_janitor_does_not_trust_is_not_deleted_as_superseded(
    store: Clocked, keys: tuple[SigningKey, ...]
) -> None:
    """Somebody else may trust it, and not what the janitor trusts."""
    first = write_segment(store, K)
    write_segment(store, KL, supersedes=[first], keys=keys[:1])
    store.wait(LATE)
    assert planned(store, Trust(frozenset({keys[0].public}))).deletions == ()
    assert [d.segment for d in planned(store).deletions] == [first]


def test_segments_that_cannot_be_read_count_for_nothing(store: Clocked) -> None:
    """Of a newer format, of another address, or not what their name says: they stay, and what they
    name stays."""
    first = write_segment(store, K)
    elsewhere = Address("other", "any", ENVIRONMENT.digest)
    moved = write_segment(store, KL, address=elsewhere, supersedes=[first])
    for kind in ("tar.zst", "json"):
        data = store.get(object_key(elsewhere, moved, kind), limit=1 << 20) or b""
        store.put(object_key(ADDRESS, moved, kind), data)
        if kind == "json":
            newer = json.dumps({**json.loads(data), "format": 2}).encode()
            store.put(object_key(ADDRESS, digest_bytes(newer), "json"), newer)
            store.put(object_key(ADDRESS, "0" * 64, "json"), data)
    store.wait(LATE)
    found = planned(store)
    assert found.deletions == ()
    texts = "\n".join(reasons(found))
    assert "has format 2" in texts
    assert "says that it belongs to other/any" in texts
    assert "does not have the digest that its name says" in texts


@pytest.mark.parametrize(
    ("units", "needs"),
    [({"triton/L": {"a": b""}}, ()), ({"triton/K": {"a": b"1"}}, ("avx512f",))],
    ids=["less", "only for some hosts"],
)
def test_a_successor_that_does_not_hold_it_all(
    store: Clocked, units: Any, needs: tuple[str, ...]
) -> None:
    """What it says is not enough: a key must be there, for all hosts that could use it."""
    first = write_segment(store, K)
    write_segment(store, units, needs=needs, supersedes=[first])
    store.wait(LATE)
    found = planned(store)
    assert found.deletions == ()
    assert "does not hold all that it holds" in reasons(found)[0]


def test_a_successor_with_fewer_files(store: Clocked) -> None:
    """A unit gives way to one with as many files, not to a fragment."""
    first = write_segment(store, {"triton/K": {"a": b"1", "b": b"2"}})
    write_segment(store, K, supersedes=[first])
    store.wait(LATE)
    assert planned(store).deletions == ()


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_successor_without_its_pack(store: Clocked, damage: str) -> None:
    """The older segment is what is left of the bundle then."""
    first = write_segment(store, K)
    second = write_segment(store, KL, supersedes=[first])
    pack = object_key(ADDRESS, second, "tar.zst")
    store.delete(pack)
    if damage == "cut":
        store.put(pack, b"half")
    store.wait(LATE)
    found = planned(store)
    assert found.deletions == ()
    assert "lacks its pack" in reasons(found)[0]


def test_a_chain_gives_way_to_the_part_of_it_that_is_old_enough(store: Clocked) -> None:
    """A segment that was superseded long ago need not wait for the newest one."""
    first = write_segment(store, K)
    second = write_segment(store, K | {"triton/M": {"a": b""}}, supersedes=[first])
    store.wait(LATE)
    third = write_segment(store, KL | {"triton/M": {"a": b""}}, supersedes=[first, second])
    assert [d.segment for d in collect(store).deleted] == [first]
    assert left(store) == {second, third}
    store.wait(LATE)
    assert [d.segment for d in collect(store).deleted] == [second]


@pytest.mark.parametrize("kind", ["tar.zst", "sig"])
def test_orphans_go_after_the_grace_time(store: Clocked, kind: str) -> None:
    """Before it they may be those of a push that has not come to its manifest."""
    write_segment(store, K)
    orphan = object_key(ADDRESS, "f" * 64, kind)
    store.put(orphan, b"pack")
    store.wait(LATE - 2)
    early = planned(store)
    assert early.deletions == ()
    assert reasons(early) == ["no manifest names it yet: a push may be at work"]
    store.wait(2)
    assert [d.cause for d in collect(store).deleted] == ["orphan"]
    assert store.deleted == [orphan]


@pytest.mark.parametrize("keyed", [False, True])
def test_what_does_not_count_makes_no_room(
    store: Clocked, keys: tuple[SigningKey, ...], keyed: bool
) -> None:
    """Packs that a killed push has left are no part of what the budget weighs, so to delete them
    is not enough."""
    signing = keys[:1] if keyed else ()
    for name in ("a", "b"):
        address = Address(name, "any", ENVIRONMENT.digest)
        write_segment(store, K, address=address, keys=signing)
        store.put(object_key(address, "f" * 64, "tar.zst"), b"0" * 100_000)
        store.wait(HOUR)
    store.wait(LATE)
    sizes = [stat.size for stat in store.list() if not stat.key.endswith("f.tar.zst")]
    trust = Trust(frozenset({keys[0].public})) if keyed else EVERYONE
    budget = sum(sizes) - 1
    done = collect(store, trust, Policy(max_bytes=budget))
    assert {(d.address.name, d.cause) for d in done.deleted} == {("a", "policy"), ("b", "orphan")}
    assert sum(stat.size for stat in store.list()) <= budget


def test_a_pin_of_a_key_that_the_janitor_does_not_know(
    store: Clocked, keys: tuple[SigningKey, ...]
) -> None:
    """As after a rotation of keys: what it cannot read stays, unless there is no room."""
    write_segment(store, K, tags=["prod"], keys=keys[:1])
    store.wait(100 * DAY)
    trust = Trust(frozenset({keys[1].public}))
    rules = Policy(older_than_s=DAY, torch=("1",), keep_last=1, keep_tags=frozenset({"prod"}))
    found = planned(store, trust, rules)
    assert found.deletions == ()
    assert reasons(found)[0].startswith("holds nothing that is trusted here")
    assert len(planned(store, trust, Policy(max_bytes=0)).deletions) == 1


def test_objects_of_other_names_are_left_alone(store: Clocked) -> None:
    """Other programs' objects, and names that a later version may give a meaning."""
    names = ["tccache.json", "other", "bundles/x", "leases/a", f"bundles/gpt/any/{'0' * 64}/x.json"]
    for name in names:
        store.put(name, b"{}")
    store.wait(100 * DAY)
    collect(store, policy=Policy(older_than_s=0, max_bytes=0, torch=("1",), keep_last=1))
    assert store.deleted == []


@pytest.mark.parametrize("failure", ["denied", "before", "after"])
def test_any_delete_may_fail_and_the_next_run_goes_on(
    make_desk: Callable[..., Any], store: Clocked, failure: Any
) -> None:
    """A run ends at the first failure and knows what it did; readers lose nothing; runs that
    follow leave what one undisturbed run leaves."""
    desk = make_desk(store)
    for letter in "KLM":
        desk.push(desk.draft(f"triton/{letter}", a=b"1"))
    store.put(object_key(ADDRESS, "f" * 64, "tar.zst"), b"orphan")
    before = desk.contents()
    store.wait(LATE)
    total = sum(len(deletion.objects) for deletion in planned(store).deletions)
    assert total == 5
    for _ in range(total):
        todo = planned(store)
        faulty = Faulty(store, [Fault("delete", failure, first=2)])
        outcome = carry_out(todo, faulty, lambda _: None)
        if outcome.failure is None:
            break
        assert isinstance(outcome.failure, AccessDenied if failure == "denied" else StoreError)
        assert sum(len(deletion.objects) for deletion in outcome.deleted) == 1
        assert desk.contents() == before
    assert planned(store).deletions == ()
    assert desk.contents() == before
    assert len(desk.keys()) == 2


def test_a_push_that_is_too_slow_gives_up(
    store: Clocked, make_desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a pack and its manifest there is less time than any janitor grants."""
    hours = iter([0.0, PUSH_S - 1, 0.0, PUSH_S + 1])
    monkeypatch.setattr(publish, "monotonic", lambda: next(hours))
    desk = make_desk(store)
    wrote = desk.push(desk.draft("triton/K", a=b"1"))
    with pytest.raises(StoreError, match="took 1801 s, and after 1800 s it could be taken"):
        desk.push(desk.draft("triton/L", a=b"2"))
    assert left(store) == {wrote.segment}
    assert PUSH_S < MIN_GRACE_S


class Hasty(Wrapper):
    """A store whose janitor deletes packs that have no manifest yet."""

    def _put(self, key: str, source: Stored) -> None:
        if key.endswith(".json") and self.hasty:
            self.hasty = False
            for kind in ("tar.zst", "sig"):
                self.inner.delete(key.replace(".json", f".{kind}"))
        super()._put(key, source)

    hasty = True


def test_a_pack_that_was_taken_for_rubbish_is_put_again(
    store: Clocked, make_desk: Callable[..., Any], keys: Any
) -> None:
    """As by a janitor whose clock is wrong: the push looks once more, after its manifest."""
    desk = make_desk(Hasty(store), signing=keys)
    wrote = desk.push(desk.draft("triton/K", a=b"1"))
    assert desk.contents() == {"triton/K/a": b"1"}
    wanted = {object_key(ADDRESS, wrote.segment, kind) for kind in ("tar.zst", "sig", "json")}
    assert set(desk.keys()) == wanted


def test_a_look_that_fails_does_not_fail_the_push(
    store: Clocked, make_desk: Callable[..., Any]
) -> None:
    """All is written by then, and the manifest says so to every reader."""
    desk = make_desk(Faulty(store, [Fault("stat", "before", count=9)]))
    assert desk.push(desk.draft("triton/K", a=b"1")).segment in left(store)


def test_a_manifest_that_no_reader_would_take(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would supersede nothing and help nobody, so nothing is written."""
    monkeypatch.setattr(publish, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(IntegrityError, match="more than any reader takes"):
        desk.push(desk.draft("triton/K", a=b"1"))
    assert desk.keys() == []
