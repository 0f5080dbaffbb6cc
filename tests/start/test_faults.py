"""Stores that hang: no start outlives its deadline, and nobody else waits for one that was left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from tests.cli.silent_s3 import Bucket

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")

STORES = """
import threading
from cachesvc.store.faulty import EVER, Fault, Faulty
from cachesvc.store.location import open_store

stuck, go = threading.Event(), threading.Event()

def wait():
    stuck.set()
    assert go.wait(200)

def faulty(*plan):
    return Faulty(open_store(given["store"]), plan, wait=wait)

def time_is_up(work, seconds=None):
    "In the place of Work.wait: whatever time was given is over once the store hangs."
    assert stuck.wait(200)
    return work.is_done

calls = [lambda: None]
"""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "half of a list": ('Fault("list", "stall")', {}),
    "half of a manifest": ('Fault("fetch", "stall", suffix=".json", first=2)', {}),
    "half of a pack": ('Fault("fetch", "stall", suffix=".tar.zst")', {}),
    "the records of outputs": ('Fault("fetch", "hang", suffix=".json", first=3)', {"check": True}),
}


@pytest.fixture(scope="module")
def outcomes(starts: Starts, plain: Published) -> dict[str, Any]:
    """What became of each case, and how many pieces of work were left behind."""
    plans = ", ".join(f"{name!r}: {plan}" for name, (plan, _) in CASES.items())
    found: dict[str, Any] = starts.run(
        STORES
        + f"plans = {{{plans}}}\n"
        + """
from unittest.mock import patch
from cachesvc.start.work import Work

result = {}
for name, options in given["options"].items():
    stuck.clear()
    with patch.object(Work, "wait", time_is_up):
        report = start(Plain(), calls=calls, store=faulty(plans[name]), **options)
    left = [one for one in threading.enumerate() if one.name == "tccache-start"]
    result[name] = {**shown(report), "stuck": stuck.is_set(), "left": len(left)}
    go.set()
    for thread in left:
        thread.join(200)
    go.clear()
    result[name]["lying"] = [str(path) for path in Path(report.live).rglob("*/fxgraph/*")]
""".replace("Path(", "__import__('pathlib').Path("),
        store=plain.store,
        label="plain",
        given={"options": {name: options for name, (_, options) in CASES.items()}},
    )
    return found


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", CASES)
def test_a_store_that_stalls(outcomes: dict[str, Any], name: str) -> None:
    """The start goes on without the bundle, though what hangs was never released; and nothing
    enters the live directory when it is."""
    outcome = outcomes[name]
    assert outcome["stuck"]
    assert outcome["left"] == 1
    assert outcome["first_call_s"] is not None
    assert outcome["bundle"] is None
    assert any("the start went on without the bundle" in note for note in outcome["notes"])
    assert outcome["lying"] == []


def test_a_prefetch_that_hangs_lets_go_of_the_directory(starts: Starts, plain: Published) -> None:
    """Once its own deadline is over, though nobody waits for it: a start of another name, which
    needs the same live directory, is not kept waiting."""
    report, state = starts.run(
        STORES
        + """
store = faulty(Fault("fetch", "stall", suffix=".tar.zst"))
hanging = cachesvc.prefetch("plain", store=store, deadline=4)
assert stuck.wait(100)
report = shown(start(torch.compile(Plain()), [ones()], deadline=100))
result = report, hanging.state()
""",
        store=plain.store,
        label="plain",
    )
    assert state == "under way"
    assert report["verdict"] == "warm"


def test_a_program_starts_though_a_network_folder_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever looks at a folder of a file server that is away waits: the program does not."""
    stuck, go = threading.Event(), threading.Event()

    def hang(path: object) -> bool:
        stuck.set()
        assert go.wait(100)
        return False

    monkeypatch.setattr("cachesvc.store.directory.others_may_write", hang)
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    ran = cachesvc.run("m", ["true"], store=tmp_path / "store", publish=False, deadline=1)
    assert stuck.is_set()
    assert not go.is_set()
    go.set()
    assert ran.exit_code == 0
    assert any("the deadline of 1 s passed" in note for note in ran.notes)


@pytest.fixture
def silent() -> Iterator[Bucket]:
    """An S3 that takes no pack."""
    with Bucket("PUT") as bucket:
        yield bucket


@pytest.mark.slow
def test_a_process_ends_whatever_hangs(starts: Starts, plain: Published, silent: Bucket) -> None:
    """A prefetch, a start and a publication that all hang: the process does its work and ends,
    having waited for the publication as long as it should and no longer."""
    report = starts.run(
        STORES
        + """
import cachesvc.start.beside
cachesvc.start.beside.EXIT_PATIENCE_S = 0.5
cachesvc.prefetch("other", store=faulty(Fault("list", "hang")))
hangs = faulty(Fault("fetch", "hang", suffix=".tar.zst"))
first = shown(start(Plain(), calls=calls, store=hangs, deadline=1))
report = start(torch.compile(Plain()), [ones()], store=given["silent"], trust="store", publish=True)
ended = report.publishing.wait(2)
result = first, shown(report), ended, stuck.is_set()
""",
        store=plain.store,
        label="plain",
        given={"silent": silent.url},
        own=True,
    )
    first, last, ended, stuck = report
    assert any("the start went on without the bundle" in note for note in first["notes"])
    assert (last["verdict"], last["published"], ended, stuck) == ("cold", "under way", False, True)
    assert silent.stuck.is_set()
