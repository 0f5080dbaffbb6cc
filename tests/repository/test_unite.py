"""Merging without a push: every host and everyone who trusts a key finds what it found before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cachesvc.core.components import Components
from cachesvc.core.requirement import Capabilities
from cachesvc.core.trust import EVERYONE, Trust
from cachesvc.repository import publish as module
from cachesvc.repository.gc import carry_out, judge, plan
from cachesvc.repository.keys import SigningKey
from cachesvc.repository.policy import Policy
from cachesvc.repository.publish import Facts, Publication, held_units, unite
from cachesvc.store.contract import Store

from .clocked import ADDRESS, ENVIRONMENT, LATE, Clocked, new_key, write_segment

PLAIN = Capabilities()
SMALL = Capabilities(isa=frozenset({"avx2"}))
BIG = Capabilities(isa=frozenset({"avx2", "avx512f"}))
HOSTS = (PLAIN, SMALL, BIG)


@pytest.fixture
def store(anywhere: Store) -> Clocked:
    return Clocked(anywhere)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[SigningKey, ...]:
    folder = tmp_path_factory.mktemp("keys")
    return tuple(new_key(folder, name) for name in "AB")


def merged(desk: Any) -> Publication:
    """What a janitor's merge does at this moment."""
    desk.clock += 1
    facts = Facts(ADDRESS, ENVIRONMENT, Components(), desk._now(), f"{desk.clock:032x}")
    return unite(desk.repository, facts, desk.read())


def test_additions_become_one_segment(
    store: Clocked, make_desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pushes that wrote their additions alone, as they do where packs are large, are merged with
    their tags, coverage and origins; the next time there is nothing to do."""
    desk = make_desk(store)
    monkeypatch.setattr(module, "MERGE_LIMIT_BYTES", 0)
    for letter in "KLM":
        desk.push(
            desk.draft(f"triton/{letter}", a=b"1"), tags=(letter,), coverage=(f"f({letter})",)
        )
    before = desk.read()
    assert len(before.segments) == 3
    wrote = merged(desk)
    assert (wrote.added, wrote.carried) == (0, 3)
    (segment,) = desk.read().segments
    assert segment.name == wrote.segment
    assert set(segment.manifest.supersedes) == {s.name for s in before.segments}
    assert segment.manifest.tags == ("K", "L", "M")
    assert segment.manifest.coverage == ("f(K)", "f(L)", "f(M)")
    assert {unit.origin for unit in segment.units} == {
        unit.origin for s in before.segments for unit in s.units
    }
    assert merged(desk).segment is None
    assert len(desk.contents()) == 3


def test_units_that_no_host_here_could_use_are_merged(store: Clocked, desk: Any) -> None:
    """A janitor is no host: what it moves need not fit it."""
    desk = replace(desk, store=store)
    write_segment(store, {"triton/K": {"a": b"1"}}, needs=("amx",))
    store.wait(1)
    write_segment(store, {"triton/L": {"a": b"2"}}, needs=("sve2",))
    assert merged(desk).carried == 2


def test_a_version_for_few_hosts_never_replaces_one_for_many(store: Clocked, desk: Any) -> None:
    """The younger unit of a key needs more: both stay live."""
    desk = replace(desk, store=store)
    write_segment(store, {"triton/K": {"a": b"1"}}, needs=("avx2",))
    store.wait(1)
    write_segment(store, {"triton/K": {"a": b"2"}}, needs=("avx2", "avx512f"))
    assert merged(desk).segment is None
    store.wait(1)
    write_segment(store, {"triton/K": {"a": b"3"}})
    assert merged(desk).carried == 1


def test_units_that_cannot_lie_in_one_tree_stay_apart(store: Clocked, desk: Any) -> None:
    """A file of one is a folder of the other, so one segment cannot hold both."""
    desk = replace(desk, store=store)
    write_segment(store, {"extra/tool/x": {"y": b"1"}})
    store.wait(1)
    write_segment(store, {"extra/tool": {"x": b"1"}})
    assert merged(desk).segment is None


def test_only_what_the_same_keys_have_signed_is_merged(
    store: Clocked, desk: Any, keys: tuple[SigningKey, ...]
) -> None:
    """A merge is signed by its own keys, so it takes in what just these have signed."""
    several = (*[()] * 2, *[keys[:1]] * 2, *[keys[1:]] * 2, *[keys] * 2)
    for number, signing in enumerate(several):
        store.wait(1)
        write_segment(store, {f"triton/K{number}": {"a": b"1"}}, keys=signing)
    for signing in ((), keys[:1], keys[1:], keys):
        wrote = merged(replace(desk, store=store, signing=signing))
        assert wrote.carried == 2
    assert len(replace(desk, store=store).read().segments) == 4


@dataclass(frozen=True)
class Step:
    """What one process does: a push of units with so many files, a merge, or a collection."""

    verb: str
    host: int = 0
    signing: tuple[int, ...] = ()
    units: tuple[str, ...] = ()
    files: int = 1


PUSHES = st.builds(
    Step,
    st.just("push"),
    st.integers(0, 2),
    st.sampled_from([(), (), (0,), (1,), (0, 1)]),
    st.sampled_from([("K",), ("K", "L"), ("L",)]),
    st.integers(1, 2),
)
MERGES = st.builds(Step, st.just("merge"), signing=st.sampled_from([(), (), (0,), (0, 1)]))
COLLECTIONS = st.builds(Step, st.just("gc"), signing=st.sampled_from([(), (), (0,), (1,)]))
SMALLER_FIRST = [Step("push", 1, (), ("K",)), Step("push", 2, (), ("K",), 2), Step("gc")]
APART = [Step("push", host, (), ("K",), 1 + host) for host in (1, 2, 0)]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(PUSHES | PUSHES | MERGES | COLLECTIONS, min_size=3, max_size=8))
@example(steps=SMALLER_FIRST)
@example(steps=[*APART, Step("merge"), Step("gc")])
def test_nobody_loses_anything(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory, make_desk: Any, keys: Any
) -> None:
    """Pushes of several hosts and signers, merges, and collections by janitors of several trusts,
    in any order: what each host finds under each trust only grows by pushes, and no step takes of
    it."""
    from cachesvc.store.directory import DirectoryStore

    store = Clocked(DirectoryStore(tmp_path_factory.mktemp("store")))
    desk = make_desk(store)
    trusts = [EVERYONE, *(Trust(frozenset({key.public})) for key in keys)]
    for number, step in enumerate(steps):
        before = _views(desk, trusts)
        store.wait(LATE / 2)
        signs = tuple(keys[index] for index in step.signing)
        at_work = replace(desk, host=HOSTS[step.host], signing=signs, clock=number)
        if step.verb == "push":
            needs = ((), ("avx2",), ("avx2", "avx512f"))[step.host]
            files = dict.fromkeys("ab"[: step.files], b"1")
            at_work.push(*(at_work.draft(f"triton/{key}", *needs, **files) for key in step.units))
        elif step.verb == "merge":
            merged(at_work)
        else:
            _collect(store, Trust(frozenset(k.public for k in signs)) if signs else EVERYONE)
        after = _views(desk, trusts)
        for view, units in before.items():
            assert all(after[view].get(key, 0) >= files for key, files in units.items()), view


def _views(desk: Any, trusts: list[Trust]) -> dict[tuple[int, int], dict[str, int]]:
    """How many files of which unit each host finds under each trust."""
    found = {}
    for number, trust in enumerate(trusts):
        reading = replace(desk, trust=trust).read()
        for host in range(len(HOSTS)):
            units = held_units(reading, HOSTS[host])
            found[number, host] = {key: len(unit.entries) for key, unit in units.items()}
    return found


def _collect(store: Clocked, trust: Trust) -> None:
    from cachesvc.repository.repository import Repository

    repository, grace = Repository(store, trust), store.grace()
    judged = [
        judge(bundle, repository.read(bundle, superseded=True, signed=True), grace)
        for bundle in repository.bundles()
    ]
    outcome = carry_out(plan(judged, Policy(), grace), store, lambda _: None)
    assert outcome.failure is None
