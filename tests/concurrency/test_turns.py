"""Waiting for the lock of a live directory: as long as its holder gets on, and no longer."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

import cachesvc
from cachesvc.core.errors import BusyError, StoreError
from cachesvc.local import lock as module
from cachesvc.local.lock import SignOfLife, lock_of, take, take_in_turn
from cachesvc.local.places import Places, under
from cachesvc.local.seed import Seeder
from cachesvc.start import transfer
from cachesvc.store.contract import Store
from cachesvc.store.counting import Counting
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.streams import Target
from cachesvc.store.wrapper import Wrapper

WINDOWS = 5


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """A live directory whose lock somebody holds."""
    places = under(tmp_path / "live")
    held = lock_of(places)
    take(held, places, 0)
    yield places
    held.release()


@pytest.fixture(autouse=True)
def _signs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BETWEEN_SIGNS_S", 0.0)


class Waiting:
    """A lock that others keep; before each end of the waiting for it something happens."""

    def __init__(self, happens: Callable[[int], object]) -> None:
        self.windows = 0
        self._happens = happens

    def acquire(self, timeout: float) -> None:
        self.windows += 1
        self._happens(self.windows)
        raise Timeout("lock")


def test_who_gets_on_is_waited_for(places: Places) -> None:
    """A holder that shows a sign of life is waited for over and over; once it shows none, the next
    wait is the last, and the error says what to do."""
    sign = SignOfLife(places)
    waiting = Waiting(lambda window: window <= WINDOWS and sign.show())
    with pytest.raises(BusyError, match=r"has not got on for 120 s: see what it is waiting for"):
        take_in_turn(waiting, places, 120)
    assert waiting.windows == WINDOWS + 1


def test_a_wait_that_must_end_ends(places: Places) -> None:
    """Inside a call of the model nobody waits for a holder that gets on."""
    sign = SignOfLife(places)
    waiting = Waiting(lambda window: sign.show())
    with pytest.raises(BusyError, match="for more than 1 s"):
        take(waiting, places, 1)
    assert waiting.windows == 1


def test_signs_that_cannot_be_shown_hold_up_nobody(places: Places) -> None:
    """Something lies in the way of the sign: then patience counts from the beginning."""
    (places.records / "seeding").mkdir()
    with Seeder(under(places.root / "other")):
        SignOfLife(places).show()
    with pytest.raises(BusyError):
        take_in_turn(lock_of(places), places, 0)


class Dripping(Wrapper):
    """Gives the first bytes of a pack one by one, each when it is allowed."""

    def __init__(self, inner: Store, allow: Callable[[], object]) -> None:
        super().__init__(inner)
        self.written = threading.Semaphore(0)
        self._allow = allow

    def _fetch(self, key: str, target: Target) -> int | None:
        if not key.endswith(".tar.zst"):
            return super()._fetch(key, target)
        whole = io.BytesIO()
        super()._fetch(key, Target(whole, 1 << 30, key))
        return target.receive(len(whole.getvalue()), self._drops(whole.getvalue()))

    def _drops(self, data: bytes) -> Iterator[bytes]:
        for number in range(WINDOWS):
            self._allow()
            yield data[number : number + 1]
            self.written.release()
        yield data[WINDOWS:]


@pytest.fixture
def pushed(tmp_path: Path) -> Store:
    """A store with one bundle."""
    goods = tmp_path / "goods"
    goods.mkdir()
    (goods / "kernel").write_text("kernel")
    store = DirectoryStore(tmp_path / "store")
    cachesvc.push("m", store=store, extra={"tool": goods})
    return store


def _pull(store: Store, live: Path, **options: Any) -> cachesvc.Pulled:
    return cachesvc.pull("m", store=store, extra={"tool": live}, **options)


def _beside(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_slow_transfer_is_one_transfer(
    pushed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte comes each time that another pull's patience ends: that one waits through it all,
    finds everything in place, and has not read the pack."""
    asked = threading.Semaphore(0)
    began = threading.Event()
    counting = Counting(pushed)
    slow = Dripping(counting, lambda: (began.set(), asked.acquire()))
    windows = iter(range(WINDOWS))
    has_taken = module._has_taken

    def patient(lock: FileLock, places: Places, patience_s: float) -> bool:
        if has_taken(lock, places, 0):
            return True
        if next(windows, None) is None:
            return has_taken(lock, places, patience_s)
        asked.release()
        return not slow.written.acquire()

    monkeypatch.setattr(module, "_has_taken", patient)
    first: list[cachesvc.Pulled] = []
    live = tmp_path / "live"
    thread = _beside(lambda: first.append(_pull(slow, live)))
    began.wait()
    told: list[str] = []
    second = _pull(pushed, live, progress=told.append)
    thread.join()
    assert f"wait for the process that seeds {live}" in told
    assert next(windows, None) is None
    assert (first[0].transfer.packs, first[0].transfer.seeded) == (1, 1)
    assert (second.transfer.packs, second.transfer.in_place) == (0, 1)
    assert (live / "kernel").read_text() == "kernel"


def test_a_transfer_that_hangs_blocks_nobody_for_ever(
    pushed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that stops half-way: after its patience the other pull says so, and the first one
    comes to its end when the store goes on."""
    monkeypatch.setattr(transfer, "Seeder", lambda places: Seeder(places, patience_s=0.02))
    began, go_on = threading.Event(), threading.Event()
    stopping = Dripping(pushed, lambda: (began.set(), go_on.wait()))
    first: list[cachesvc.Pulled] = []
    live = tmp_path / "live"
    thread = _beside(lambda: first.append(_pull(stopping, live)))
    began.wait()
    with pytest.raises(BusyError, match="has not got on"):
        _pull(pushed, live)
    go_on.set()
    thread.join()
    assert first[0].transfer.seeded == 1


def test_a_deadline_ends_the_wait_for_who_gets_on(pushed: Store, tmp_path: Path) -> None:
    """The holder gets on all the time; who waits has a deadline of its own, and keeps it."""
    live = tmp_path / "live"
    held = lock_of(Places(live, ()))
    take(held, Places(live, ()), 0)
    sign = SignOfLife(Places(live, ()))
    ended = threading.Event()
    showing = _beside(lambda: [sign.show() for _ in iter(ended.is_set, True)])
    with pytest.raises(StoreError, match=r"the deadline of 0\.1 s passed"):
        _pull(pushed, live, deadline=0.1)
    ended.set()
    showing.join()
    held.release()
    assert _pull(pushed, live).transfer.seeded == 1
