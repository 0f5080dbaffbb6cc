"""Faults of real connections to an S3 service: each ends as the right result or the right error."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from cachesvc.core.errors import AccessDenied, StoreError
from cachesvc.start.work import Work
from cachesvc.store.contract import Store
from cachesvc.store.faulty import EVER
from cachesvc.store.s3 import S3Store
from cachesvc.store.s3_wire import ATTEMPTS
from tests.faults.conftest import Place
from tests.faults.proxy import Proxy, Rule, Trouble

SMALL = bytes(range(200))
LARGE = bytes(range(256)) * 5
"""Moves in four parts."""


@dataclass(frozen=True)
class Case:
    """A verb, what it gives, and the requests of it that may fail: method, query, end of key."""

    call: Callable[[Store], Any]
    expected: Any
    method: str
    query: str = ""
    suffix: str = ""

    def rule(self, trouble: Trouble, count: int) -> Rule:
        return Rule(trouble, self.method, self.suffix, self.query, count=count)


def put(key: str, data: bytes) -> Callable[[Store], bytes | None]:
    def call(store: Store) -> None:
        store.put(key, data)

    return call


CASES = {
    "fetch": Case(lambda store: store.get("small", limit=200), SMALL, "GET"),
    "fetch in parts": Case(lambda store: store.get("large", limit=1280), LARGE, "GET"),
    "list": Case(lambda store: [s.key for s in store.list()], ["large", "small"], "GET"),
    "stat": Case(lambda store: store.stat("small").size, 200, "HEAD", suffix="small"),
    "delete": Case(lambda store: store.delete("small"), None, "DELETE"),
    "put": Case(put("new", SMALL), None, "PUT"),
    "put: begin parts": Case(put("new", LARGE), None, "POST", "uploads"),
    "put: a part": Case(put("new", LARGE), None, "PUT", "partNumber=2"),
    "put: end parts": Case(put("new", LARGE), None, "POST", "uploadId"),
}


def fill(place: Place) -> None:
    """What reads find; nothing of what writes make."""
    place.write("small", SMALL)
    place.write("large", LARGE)
    place.remove("new")


def check_written(name: str, place: Place) -> None:
    """What was put is there whole, and what was deleted is gone."""
    if name.startswith("put"):
        data = SMALL if name == "put" else LARGE
        assert place.read("new") == data
    if name == "delete":
        assert place.read("small") is None


PASSING: tuple[Trouble, ...] = (
    "refused", "lost", "reset", "cut", "empty", "inside", "slow down", "internal"
)  # fmt: skip
_NEED_A_BODY = ("reset", "cut", "empty", "inside")
_BODIES = ("fetch", "fetch in parts", "list", "put: begin parts", "put: end parts")


def can_happen(name: str, trouble: str) -> bool:
    """Whether an answer of this verb has what the trouble is about."""
    if trouble == "inside":
        return name in ("list", "put: end parts")
    return trouble not in _NEED_A_BODY or name in _BODIES


def can_last(name: str, trouble: str) -> bool:
    """Whether a verb can meet it at each attempt: what a write did is found by the next one."""
    return can_happen(name, trouble) and (trouble, name) != ("reset", "put: end parts")


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("name", CASES)
def test_a_passing_trouble(store: S3Store, place: Place, proxy: Proxy, name: str) -> None:
    """Of each kind: it is waited out, and the end is as if nothing had been."""
    case = CASES[name]
    for trouble in filter(partial(can_happen, name), PASSING):
        fill(place)
        proxy.expect(case.rule(trouble, 1))
        assert case.call(store) == case.expected, trouble
        check_written(name, place)
        assert proxy.injected == {trouble: 1}


LASTING: dict[Trouble, tuple[type, str]] = {
    "refused": (StoreError, "try again"),
    "reset": (StoreError, "try again"),
    "slow down": (StoreError, "throttling"),
    "internal": (StoreError, "try again"),
    "denied": (AccessDenied, "permission"),
    "expired": (AccessDenied, "renew"),
    "skewed": (AccessDenied, "set this machine's clock"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_lasting_trouble(
    store: S3Store, place: Place, proxy: Proxy, pauses: list[float], name: str
) -> None:
    """Of each kind: it ends, as an error that says what, where and what to do; what is denied is
    asked once. No part of a write is seen."""
    fill(place)
    for trouble in filter(partial(can_last, name), LASTING):
        kind, advice = LASTING[trouble]
        proxy.expect(CASES[name].rule(trouble, EVER))
        pauses.clear()
        with pytest.raises(StoreError) as caught:
            CASES[name].call(store)
        assert type(caught.value) is kind
        assert advice in str(caught.value)
        assert store.url in str(caught.value)
        if kind is AccessDenied:
            # After a 400 to HEAD botocore asks once more, as the bucket may be in another region.
            assert proxy.injected[trouble] <= (2 if name == "stat" else 1)
            assert not any(pauses)
        else:
            assert proxy.injected[trouble] >= ATTEMPTS
        assert place.read("new") is None


@pytest.mark.usefixtures("impatient", "pauses")
@pytest.mark.parametrize("name", ["fetch", "fetch in parts", "list", "stat", "put", "put: a part"])
def test_a_request_that_hangs(store: S3Store, place: Place, proxy: Proxy, name: str) -> None:
    """Where no byte comes within the client's patience it asks again."""
    fill(place)
    proxy.expect(CASES[name].rule("hang", 1))
    assert CASES[name].call(store) == CASES[name].expected
    check_written(name, place)
    assert proxy.injected == {"hang": 1}


@pytest.mark.usefixtures("impatient", "pauses")
def test_a_service_that_hangs(store: S3Store, place: Place, proxy: Proxy) -> None:
    """It is given up after as many attempts as for any trouble, and said to be no answer."""
    fill(place)
    proxy.expect(Rule("hang"))
    with pytest.raises(StoreError, match=r"small in s3://bucket.*timeout.*try again"):
        store.get("small", limit=200)
    assert proxy.injected == {"hang": ATTEMPTS}


@pytest.mark.parametrize("name", ["fetch", "list", "put", "delete"])
def test_a_first_byte_that_is_slow(store: S3Store, place: Place, proxy: Proxy, name: str) -> None:
    """It is waited for, and asked for once."""
    fill(place)
    proxy.expect(CASES[name].rule("slow", EVER))
    work = Work(lambda: CASES[name].call(store), "slow")
    assert proxy.stuck.wait(60)
    assert not work.is_done
    proxy.go.set()
    assert work.wait(60)
    assert work.result() == CASES[name].expected
    check_written(name, place)
    assert proxy.injected == {"slow": 1}


def test_a_clock_that_is_wrong(store: S3Store, proxy: Proxy) -> None:
    """The error tells the service's time, to set this machine's by."""
    proxy.expect(Rule("skewed"))
    with pytest.raises(AccessDenied, match="set this machine's clock: the service has Mon, 06 May"):
        store.get("small", limit=200)


def test_a_missing_key_that_is_hidden(store: S3Store, place: Place, proxy: Proxy) -> None:
    """403 is not taken for a missing object, and the text says that it could mean one; an object
    that is there is read."""
    fill(place)
    proxy.expect(Rule("hidden"))
    for verb in (lambda: store.get("missing", limit=1), lambda: store.stat("missing")):
        with pytest.raises(AccessDenied, match=r"s3:ListBucket"):
            verb()
    assert store.get("small", limit=200) == SMALL


def test_bytes_that_are_damaged_on_the_way(store: S3Store, place: Place, proxy: Proxy) -> None:
    """The service's checksum finds it: an error of the wire."""
    fill(place)
    proxy.expect(Rule("flip"))
    with pytest.raises(StoreError, match=r"small in .*damaged on the way"):
        store.get("small", limit=200)
    assert proxy.injected == {"flip": 1}


OPERATIONS = 30


def plan(seed: int) -> list[Rule]:
    """About one request of three fails, each in some way that passes."""
    chance = random.Random(seed)
    troubles = [trouble for trouble in PASSING if trouble != "inside"]  # never said of an object
    return [
        Rule(chance.choice(troubles), first=number, count=1)
        for number in range(1, 6 * OPERATIONS)
        if chance.random() < 1 / 3
    ]


def run_schedule(seed: int, store: S3Store, place: Place, proxy: Proxy) -> Counter[str]:
    """Puts, reads and deletes while requests fail; what became of each operation."""
    chance, held, unsure = random.Random(seed), {}, set()
    proxy.expect(*plan(seed))
    ends: Counter[str] = Counter()
    for number in range(OPERATIONS):
        verb = chance.choice(["put", "put", "get", "get", "list", "delete"])
        key = f"k/{number}" if verb == "put" or not held else chance.choice(sorted(held))
        data = chance.randbytes(chance.choice([100, 1700]))
        try:
            if verb == "put":
                unsure.add(key)
                store.put(key, data)
                held[key] = data
                unsure.discard(key)
            elif verb == "get":
                assert store.get(key, limit=2000) == held.get(key)
            elif verb == "list":
                keys = {stat.key for stat in store.list("k/")}
                assert held.keys() - unsure <= keys <= held.keys() | unsure
            else:
                unsure.add(key)
                store.delete(key)
                held.pop(key, None)
                unsure.discard(key)
            ends["done"] += 1
        except StoreError:
            ends["failed"] += 1
            if verb in ("put", "delete"):
                held.pop(key, None)
    for key, data in held.items():
        assert place.read(key) == data
    return ends


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("seed", range(4))
def test_a_schedule_of_troubles(store: S3Store, place: Place, proxy: Proxy, seed: int) -> None:
    """Whatever fails meanwhile: what was put is read as it was put, or an error says that it cannot
    be; nothing that was put is lost."""
    ends = run_schedule(seed, store, place, proxy)
    assert ends["done"] > OPERATIONS / 2
    assert proxy.injected.total() > OPERATIONS / 3


@pytest.mark.slow
@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("seed", range(4, 104))
def test_a_hundred_schedules_of_troubles(
    store: S3Store, place: Place, proxy: Proxy, seed: int
) -> None:
    """As above."""
    assert run_schedule(seed, store, place, proxy)["done"] > OPERATIONS / 2
    assert proxy.injected.total() > OPERATIONS / 3
