"""One process: many threads on one store, and forks of it in the middle of its work."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import fsspec
import pytest

import cachesvc
from cachesvc.store.contract import Store
from cachesvc.store.location import open_store

from .conftest import Goods, makers, slow, url_of

THREADS = 16
PATIENCE_S = 120


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCCACHE_TRUST", "store")
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))


@pytest.fixture(params=["directory", slow("file"), "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """As elsewhere, with a quick test on S3: its client is what forks must not share."""
    return url_of(request, tmp_path)


@pytest.fixture(params=["directory", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "s3":
        yield open_store(request.getfixturevalue("bucket"), trusted=True)
    elif request.param == "memory":
        name = uuid.uuid4().hex
        yield open_store(f"memory://{name}/prefix", trusted=True)
        fsspec.filesystem("memory").rm(f"/{name}", recursive=True)
    else:
        yield open_store(tmp_path / "store")


def at_once(*calls: Callable[[], object]) -> None:
    """Runs each call in a thread of its own; raises what one of them raised."""
    gate = Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        gate.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(run, call) for call in calls]:
            done.result()


def test_threads_share_a_store(store: Store, goods: Goods, tmp_path: Path) -> None:
    """Sixteen threads push, pull, look up and list through one store object: each pull is whole,
    and all that was pushed is there."""
    cachesvc.push("m", store=store, triton_dir=goods("base", "X"))
    letters = "ABCDEF"
    made = {letter: goods(letter, letter) for letter in letters}

    def push(letter: str) -> None:
        cachesvc.push("m", store=store, triton_dir=made[letter])

    def pull(number: int) -> None:
        cachesvc.pull("m", store=store, triton_dir=tmp_path / f"live{number}", require=True)
        assert makers(tmp_path / f"live{number}")["X"] == "base"

    def look() -> None:
        assert cachesvc.lookup("m", store=store).hit
        assert len(cachesvc.list_bundles(store=store)) == 1

    calls: list[Callable[[], object]] = [lambda letter=letter: push(letter) for letter in letters]
    calls += [lambda number=number: pull(number) for number in range(THREADS - 8)]
    at_once(*calls, look, look)
    assert cachesvc.verify(store=store).problems == ()
    cachesvc.pull("m", store=store, triton_dir=tmp_path / "new")
    assert set(makers(tmp_path / "new")) == set(letters) | {"X"}


def test_threads_share_a_live_directory(store: Store, goods: Goods, tmp_path: Path) -> None:
    """Of sixteen threads that pull into one directory one brings the pack."""
    cachesvc.push("m", store=store, triton_dir=goods("maker", "ABC"))
    told: list[cachesvc.Pulled] = []

    def pull() -> None:
        told.append(cachesvc.pull("m", store=store, triton_dir=tmp_path / "live", require=True))

    at_once(*[pull] * THREADS)
    assert sorted(each.transfer.seeded for each in told) == [0] * (THREADS - 1) + [3]
    assert makers(tmp_path / "live") == dict.fromkeys("ABC", "maker")


# A process that has used a store, and whose threads are in the middle of using it, forks; parent
# and children go on at once.
FORKS = """
import os, signal, sys, threading
from pathlib import Path
import cachesvc
from cachesvc.store.location import open_store

place, goods, live = sys.argv[1:4]
used = sys.argv[4] == "used"
store = open_store(place, trusted=True)

def work(who):
    for turn in range(2):
        cachesvc.push("m", store=store, triton_dir=f"{goods}/{who}")
        cachesvc.pull("m", store=store, triton_dir=f"{live}/{who}-{turn}", require=True)
        cachesvc.pull("m", store=store, require=True)
    assert cachesvc.lookup("m", store=store).hit

ended = threading.Event()

def hammer():
    while not ended.is_set():
        store.now()
        list(store.list())
        store.get("tccache.json", limit=1000)

if used:
    cachesvc.pull("m", store=store, require=True)
    threads = [threading.Thread(target=hammer, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
children = []
for who in "BCD":
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(100)
            work(who)
            status = 0
        except BaseException:
            __import__("traceback").print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
work("A")
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
ended.set()
sys.exit(str(codes) if any(codes) else 0)
"""

SPAWNED = """
import multiprocessing, sys
import cachesvc
from cachesvc.store.location import open_store

def work(place, goods, live):
    store = open_store(place, trusted=True)
    cachesvc.push("m", store=store, triton_dir=goods)
    cachesvc.pull("m", store=store, triton_dir=live, require=True)

if __name__ == "__main__":
    place, goods, live = sys.argv[1:4]
    cachesvc.pull("m", store=open_store(place, trusted=True), require=True)
    context = multiprocessing.get_context(sys.argv[4])
    started = [
        context.Process(target=work, args=(place, f"{goods}/{who}", f"{live}/{who}"))
        for who in "ABCD"
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    sys.exit(max(process.exitcode for process in started))
"""


@pytest.fixture
def shared(place: str, goods: Goods) -> str:
    """A store with one kernel, and more to be pushed."""
    cachesvc.push("m", store=place, triton_dir=goods("base", "X"))
    for letter in "ABCD":
        goods(letter, letter)
    return place


def play(folder: Path, script: str, place: str, how: str) -> None:
    file = folder / "played.py"
    file.write_text(script)
    command = [sys.executable, str(file), place, str(folder / "goods"), str(folder / "live"), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    cachesvc.pull("m", store=place, triton_dir=folder / "new")
    assert set(makers(folder / "new")) == set("ABCDX")
    for live in (folder / "live").iterdir():
        assert makers(live)["X"] == "base"


@pytest.mark.parametrize("how", [slow("imported"), "used"])
def test_forks(shared: str, how: str, tmp_path: Path) -> None:
    """A process forks three times, after its imports or in the middle of its threads' work: all
    four push and pull at once, and nobody waits for a lock that is held by nobody."""
    play(tmp_path, FORKS, shared, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_workers_of_other_kinds(shared: str, how: str, tmp_path: Path) -> None:
    """The same for workers that are spawned, and for those of a fork server."""
    play(tmp_path, SPAWNED, shared, how)
