"""Behaviour that is added by wrapping a store."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from cachesvc.core.errors import AccessDenied, IntegrityError, StoreError, UsageError
from cachesvc.start.work import Work
from cachesvc.store.contract import Store
from cachesvc.store.counting import Counting
from cachesvc.store.faulty import EVER, FAILURES, Failure, Fault, Faulty
from cachesvc.store.read_only import ReadOnly
from cachesvc.store.retrying import Retrying
from cachesvc.store.wrapper import Verb, Wrapper

VERBS: dict[Verb, Callable[[Store], Any]] = {
    "fetch": lambda store: store.get("a/b", limit=10),
    "put": lambda store: store.put("a/b", b"0123456789"),
    "list": lambda store: [stat.key for stat in store.list("a/")],
    "stat": lambda store: store.stat("a/b"),
    "delete": lambda store: store.delete("a/b"),
}
verbs = pytest.mark.parametrize("verb", VERBS)


class Unseekable(io.BytesIO):
    """A pipe."""

    def seekable(self) -> bool:
        return False


@pytest.fixture
def inner(directory: Callable[[], Store]) -> Store:
    store = directory()
    store.put("a/b", b"0123456789")
    return store


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def waits() -> list[str]:
    return []


def persistent(inner: Store, pauses: list[float], attempts: int = 3) -> Retrying:
    return Retrying(inner, attempts, sleep=pauses.append, chance=lambda: 1.0)


def test_a_wrapper_is_where_its_store_is(inner: Store) -> None:
    """URL and trust are those of the store inside, however deep it lies."""
    inner.remote = True
    outer = ReadOnly(Counting(Retrying(Faulty(inner))))
    assert (outer.url, outer.remote) == (inner.url, True)


@verbs
@pytest.mark.parametrize("failure", ["before", "after"])
def test_a_passing_failure_is_survived(
    inner: Store, pauses: list[float], verb: Verb, failure: Failure
) -> None:
    """Whether or not the first attempts were carried out, the third gives what one would have."""
    expected = VERBS[verb](inner)
    if verb == "delete":
        inner.put("a/b", b"0123456789")
    faulty = Faulty(inner, [Fault(verb, failure, count=2)])
    assert VERBS[verb](persistent(faulty, pauses)) == expected
    assert len(pauses) == 2


@verbs
def test_a_lasting_failure_ends(inner: Store, pauses: list[float], verb: Verb) -> None:
    """After the last attempt its error is raised as it is."""
    counting = Counting(Faulty(inner, [Fault(verb, "before", count=EVER)]))
    with pytest.raises(StoreError, match="as planned"):
        VERBS[verb](persistent(counting, pauses))
    assert counting.calls == {verb: 3}
    assert len(pauses) == 2


@verbs
def test_a_denial_is_not_tried_again(inner: Store, pauses: list[float], verb: Verb) -> None:
    """A right that is lacking does not come by waiting."""
    counting = Counting(Faulty(inner, [Fault(verb, "denied")]))
    with pytest.raises(AccessDenied):
        VERBS[verb](persistent(counting, pauses))
    assert counting.calls == {verb: 1}
    assert pauses == []


def test_wrong_data_is_not_tried_again(inner: Store, pauses: list[float]) -> None:
    """An object above the limit stays above it."""
    counting = Counting(inner)
    with pytest.raises(IntegrityError):
        persistent(counting, pauses).get("a/b", limit=9)
    assert counting.calls == {"fetch": 1}


def test_a_fetch_begins_again_where_it_began(inner: Store, pauses: list[float]) -> None:
    """What came before the break is taken back; what the caller had written stays."""
    faulty = Faulty(inner, [Fault("fetch", "short", count=2)])
    target = io.BytesIO(b"head")
    target.seek(0, io.SEEK_END)
    assert persistent(faulty, pauses).fetch("a/b", target, limit=10) == 10
    assert target.getvalue() == b"head0123456789"


def test_a_fetch_into_a_pipe_cannot_begin_again(inner: Store, pauses: list[float]) -> None:
    """What is gone down a pipe cannot be taken back, so the error is raised at once."""
    plan = [Fault("fetch", "before"), Fault("fetch", "short", first=2)]
    target = Unseekable()
    with pytest.raises(StoreError, match="5 of 10 bytes"):
        persistent(Faulty(inner, plan), pauses).fetch("a/b", target, limit=10)
    assert len(pauses) == 1  # the first failure had written nothing
    assert target.getvalue() == b"01234"


def test_a_listing_goes_on_where_it_broke(inner: Store, pauses: list[float]) -> None:
    """No key is missing and none comes twice."""
    for number in range(5):
        inner.put(f"a/c{number}", b"")
    faulty = Faulty(inner, [Fault("list", "short", count=2)])
    keys = [stat.key for stat in persistent(faulty, pauses).list()]
    assert keys == ["a/b", *(f"a/c{number}" for number in range(5))]
    assert len(pauses) == 2


def test_pauses_grow_up_to_a_limit_and_differ(inner: Store) -> None:
    """They double; chance takes up to half of each away."""
    faulty = Faulty(inner, [Fault("stat", "before", count=EVER)])
    for chance, expected in ((1, [1, 2, 4, 5, 5]), (0, [0.5, 1, 2, 2.5, 2.5])):
        pauses: list[float] = []
        store = Retrying(
            faulty, 6, first_pause=1, sleep=pauses.append, chance=partial(float, chance)
        )
        with pytest.raises(StoreError):
            store.stat("a/b")
        assert pauses == expected


def test_a_deadline_ends_it(inner: Store) -> None:
    """What `sleep` raises is raised, and no further attempt is made."""

    def too_late(pause: float) -> None:
        raise TimeoutError(f"{pause} s is more than is left")

    counting = Counting(Faulty(inner, [Fault("stat", "before")]))
    with pytest.raises(TimeoutError):
        Retrying(counting, sleep=too_late).stat("a/b")
    assert counting.calls == {"stat": 1}


def test_a_read_only_store(inner: Store) -> None:
    """It reads; writing raises AccessDenied and reaches nothing."""
    counting = Counting(inner)
    store = ReadOnly(counting)
    assert VERBS["fetch"](store) == b"0123456789"
    assert VERBS["list"](store) == ["a/b"]
    assert VERBS["stat"](store).size == 10
    for verb in (VERBS["put"], VERBS["delete"]):
        with pytest.raises(AccessDenied, match="for reading only"):
            verb(store)
    assert counting.calls == {"fetch": 1, "list": 1, "stat": 1}


def test_calls_and_bytes_are_counted(inner: Store) -> None:
    """Misses and failures are calls without bytes."""
    store = Counting(Faulty(inner, [Fault("put", "before")]))
    with pytest.raises(StoreError):
        store.put("a/c", b"123")
    store.put("a/c", b"123")
    for key in ("a/b", "a/c", "a/missing"):
        store.get(key, limit=10)
    store.check()
    assert store.calls == {"put": 2, "fetch": 3, "list": 1}
    assert store.bytes == {"put": 3, "fetch": 13}


def test_a_plan_hits_the_calls_it_names(inner: Store) -> None:
    """By verb, by number among the calls whose key ends as said, and for as many as said."""
    store = Faulty(inner, [Fault("put", "before", first=2, count=2, suffix=".json")])
    outcomes = []
    for key in ("1.json", "1.sig", "2.json", "2.sig", "3.json", "4.json"):
        try:
            store.put(key, b"")
            outcomes.append(key)
        except StoreError:
            assert inner.stat(key) is None
    assert outcomes == ["1.json", "1.sig", "2.sig", "4.json"]


@pytest.mark.parametrize(
    ("verb", "still_there"), [("put", True), ("delete", False)], ids=["put", "delete"]
)
def test_a_failure_after_the_fact(inner: Store, verb: Verb, still_there: bool) -> None:
    """The caller sees an error, though it was done."""
    if verb == "put":
        inner.delete("a/b")
    with pytest.raises(StoreError, match="no answer"):
        VERBS[verb](Faulty(inner, [Fault(verb, "after")]))
    assert (inner.stat("a/b") is not None) is still_there


def test_damage_that_a_reader_does_not_hear_of(inner: Store) -> None:
    """Cut and wrong bytes come without an error: only a digest finds them."""
    inner.put("empty", b"")
    store = Faulty(inner, [Fault("fetch", "cut"), Fault("fetch", "wrong", first=2, count=2)])
    assert VERBS["fetch"](store) == b"01234"
    assert VERBS["fetch"](store) == b"01234" + b"4" + b"6789"
    assert store.get("empty", limit=1) == b""
    assert VERBS["fetch"](store) == b"0123456789"


PASSING: tuple[Failure, ...] = (
    "before", "after", "throttled", "short", "reset", "slow", "hang", "stall"
)  # fmt: skip
DENIALS: dict[Failure, str] = {"denied": "denied", "expired": "renew", "skewed": "clock"}


def plan(failure: Failure, count: int = EVER) -> list[Fault]:
    """For each verb that it can happen to."""
    faults = []
    for verb in VERBS:
        with suppress(UsageError):
            faults.append(Fault(verb, failure, count=count))
    return faults


@pytest.mark.parametrize("failure", PASSING)
def test_failures_of_the_wire_pass(
    inner: Store, pauses: list[float], waits: list[str], failure: Failure
) -> None:
    """Of each kind, at each verb: the next attempt gives what there is."""
    store = persistent(Faulty(inner, plan(failure, 1), wait=lambda: waits.append("")), pauses)
    for verb, call in VERBS.items():
        inner.put("a/b", b"0123456789")
        assert call(store) == call(inner), verb
    assert len(pauses) == (0 if failure == "slow" else len(plan(failure)))
    assert len(waits) == (len(plan(failure)) if failure in ("slow", "hang", "stall") else 0)


@verbs
@pytest.mark.parametrize("failure", DENIALS)
def test_denials_say_what_to_do(
    inner: Store, pauses: list[float], failure: Failure, verb: Verb
) -> None:
    """By an old token or a wrong clock: at once, and nothing was done."""
    with pytest.raises(AccessDenied, match=DENIALS[failure]):
        VERBS[verb](persistent(Faulty(inner, plan(failure)), pauses))
    assert pauses == []
    assert VERBS["fetch"](inner) == b"0123456789"


@pytest.mark.parametrize("verb", ["fetch", "stat"])
def test_a_missing_object_may_be_hidden(inner: Store, verb: Verb) -> None:
    """403 stands for both where nothing may be listed; what is there is given."""
    store = Faulty(inner, plan("hidden"))
    assert VERBS[verb](store) == VERBS[verb](inner)
    inner.delete("a/b")
    with pytest.raises(AccessDenied, match="or there is no such object"):
        VERBS[verb](store)


@verbs
def test_a_store_that_hangs(inner: Store, verb: Verb) -> None:
    """Nobody is answered, and nothing is done, for as long as the wait lasts; a slow one does what
    it was asked for then."""
    for failure in ("hang", "slow"):
        stuck, go = threading.Event(), threading.Event()
        store = Faulty(inner, plan(failure), wait=lambda: stuck.set() or go.wait(60))  # noqa: B023
        work = Work(partial(VERBS[verb], store), "hanging")
        assert stuck.wait(60)
        assert not work.is_done
        assert VERBS["fetch"](inner) == b"0123456789"
        go.set()
        assert work.wait(60)
        assert (work.error is None) is (failure == "slow")


def test_a_body_that_stalls(inner: Store) -> None:
    """Half of it is there, and no more comes."""
    target = io.BytesIO()
    seen: list[bytes] = []
    store = Faulty(inner, plan("stall"), wait=lambda: seen.append(target.getvalue()))
    with pytest.raises(StoreError, match="broke off"):
        store.fetch("a/b", target, limit=10)
    assert seen == [b"01234"]


def test_a_plan_that_means_nothing() -> None:
    """Nothing is read by a put that could come short."""
    with pytest.raises(UsageError, match="cannot happen"):
        Fault("put", "short")
    assert all(plan(failure) for failure in FAILURES)


def test_a_bare_wrapper_passes_everything_on(inner: Store) -> None:
    """So a subclass need only write what it changes."""
    store = Wrapper(inner)
    assert VERBS["fetch"](store) == b"0123456789"
    assert VERBS["list"](store) == ["a/b"]
    VERBS["delete"](store)
    assert VERBS["stat"](store) is None
