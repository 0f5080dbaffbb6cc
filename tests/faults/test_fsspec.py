"""Faults of stores behind fsspec's drivers, which retry nothing by themselves."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import fsspec
import pytest

import cachesvc
from cachesvc.core.errors import AccessDenied, StoreError
from cachesvc.start.work import Work
from cachesvc.store.contract import Store
from cachesvc.store.counting import Counting
from cachesvc.store.faulty import FAILURES, Failure, Fault, Faulty
from cachesvc.store.retrying import Retrying
from cachesvc.store.wrapper import Verb
from tests.faults.conftest import time_is_up_at

Place = Callable[[], Store]
MIB = 1 << 20
DENIED = ("denied", "hidden", "expired", "skewed")
NAMES = ("ab/cabc.py", "fxgraph/xy/fkey/hash")
UNHEARD: tuple[Failure, ...] = ("cut", "wrong")


def can_happen(verb: Verb, failure: Failure) -> bool:
    """Whether it is a failure of this verb, and one that passes and is told."""
    halves = failure in ("short", "reset", "stall")
    return failure not in (*DENIED, *UNHEARD) and (verb in ("fetch", "list") or not halves)


def passing(seed: int) -> list[Fault]:
    """For each verb some calls, about one of four, that fail once in some way that passes."""
    chance = random.Random(seed)
    return [
        Fault(verb, chance.choice([one for one in FAILURES if can_happen(verb, one)]), first)
        for verb in get_args(Verb)
        for first in range(1, 200)
        if chance.random() < 1 / 4
    ]


def push_and_pull(store: Store, tree: Path, target: Path) -> cachesvc.Pulled:
    cachesvc.push("m", store=store, trust="store", inductor_dir=tree)
    return cachesvc.pull("m", store=store, trust="store", inductor_dir=target)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / "tree" / name).parent.mkdir(parents=True)
        (tmp_path / "tree" / name).write_text(name)
    return tmp_path / "tree"


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_of_faults(memory: Place, tree: Path, tmp_path: Path, seed: int) -> None:
    """A push and a pull through a store that fails at one call of four end as if nothing had
    been."""
    counting = Counting(Faulty(memory(), passing(seed), wait=lambda: None))
    store = Retrying(counting, 8, sleep=lambda _: None)
    assert push_and_pull(store, tree, tmp_path / "target").transfer.seeded == 2
    for name in NAMES:
        assert (tmp_path / "target" / name).read_text() == name


@pytest.mark.parametrize("failure", UNHEARD)
@pytest.mark.parametrize("number", [1, 2, 3], ids=["mark", "manifest", "pack"])
def test_what_is_read_wrong_is_not_read_again(
    memory: Place, tree: Path, tmp_path: Path, failure: Failure, number: int
) -> None:
    """Bytes that are not what they should be are never used and never asked for again."""
    push_and_pull(memory(), tree, tmp_path / "before")
    counting = Counting(Faulty(memory(), [Fault("fetch", failure, number)]))
    store, target = Retrying(counting, sleep=lambda _: pytest.fail("it waits")), tmp_path / "target"
    with pytest.raises(cachesvc.IntegrityError):
        cachesvc.pull("m", store=store, trust="store", inductor_dir=target)
    assert counting.calls["fetch"] == number
    assert not any((target / name).exists() for name in NAMES)


@pytest.fixture
def driver(objects: Place) -> Any:
    """The class of the driver behind the object store."""
    objects()
    return fsspec.get_filesystem_class("objects")


def failing_once(call: Callable[..., Any], error: Exception, number: int = 1) -> Callable[..., Any]:
    """The call, but for its n-th time, which is done, and then the answer is lost."""
    times = 0

    def fail(*arguments: Any, **options: Any) -> Any:
        nonlocal times
        times += 1
        result = call(*arguments, **options)
        if times == number:
            raise error
        return result

    return fail


@pytest.mark.parametrize(
    ("name", "number"), [("cat_file", 2), ("info", 1), ("pipe_file", 1), ("ls", 1), ("_rm", 1)]
)
def test_what_a_driver_raises_once(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """In the middle of an object too: the call is made again, and the object comes whole."""
    data = bytes(range(256)) * (MIB // 128)
    for error in (ConnectionResetError("reset"), TimeoutError(), OSError("503 slow down")):
        pauses: list[float] = []
        with monkeypatch.context() as patch:
            patch.setattr(driver, name, failing_once(getattr(driver, name), error, number))
            store = Retrying(objects(), sleep=pauses.append)
            store.put("a/b", data)
            assert store.get("a/b", limit=3 * MIB) == data
            assert [stat.key for stat in store.list()] == ["a/b"]
            store.delete("a/b")
            assert store.get("a/b", limit=1) is None
        assert len(pauses) == 1


def test_a_driver_whose_rights_end(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a token that has expired: told at once."""
    pauses: list[float] = []
    monkeypatch.setattr(driver, "info", failing_once(driver.info, PermissionError("expired")))
    store = objects()
    store.put("a", b"1")
    with pytest.raises(AccessDenied, match=r"expired.*credentials"):
        Retrying(store, sleep=pauses.append).get("a", limit=1)
    assert pauses == []


@pytest.mark.parametrize("name", ["__init__", "info", "ls", "cat_file"])
def test_a_driver_that_hangs(
    driver: Any, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where it looks for its credentials, too: a pull ends at its deadline, with nothing brought,
    and nothing comes later."""
    place = {"store": "objects://bucket/prefix", "trust": "store"}
    cachesvc.push("m", **place, inductor_dir=tree)
    stuck, go = threading.Event(), threading.Event()
    call = getattr(driver, name)

    def hang(*arguments: Any, **options: Any) -> Any:
        stuck.set()
        go.wait(60)
        return call(*arguments, **options)

    monkeypatch.setattr(driver, name, hang)
    monkeypatch.setattr(Work, "wait", time_is_up_at(stuck))
    target = tmp_path / "target"
    with pytest.raises(StoreError, match="nothing was brought"):
        cachesvc.pull("m", **place, inductor_dir=target, deadline=60)
    (left,) = (thread for thread in threading.enumerate() if thread.name == "tccache-start")
    go.set()
    left.join(60)
    assert not left.is_alive()
    assert not any((target / name).exists() for name in NAMES)
