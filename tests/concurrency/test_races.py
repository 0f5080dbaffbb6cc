"""Processes that push, pull, collect and repair at once: nothing is lost, nobody fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest

import cachesvc
from cachesvc.repository import publish as publishing
from cachesvc.store.directory import DirectoryStore

from .conftest import Goods, Race, makers

PUSH = """
import cachesvc
result = cachesvc.push("m", store=given["store"], triton_dir=given["goods"]).publication.segment
"""

PULL = """
import cachesvc
pulled = cachesvc.pull("m", store=given["store"], triton_dir=given["live"], require=True)
result = [pulled.transfer.packs, pulled.transfer.seeded, pulled.transfer.in_place]
"""

COLLECT = """
from cachesvc.start.collect import collect
done = [collect(store=given["store"], merge=True) for _ in range(given["times"])]
assert [each.failure for each in done] == [None] * len(done)
result = sum(each.objects for each in done)
"""

REPAIR = """
import cachesvc
result = len(cachesvc.verify(store=given["store"], repair=True).repaired)
"""


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Processes that have ended leave no temporary in the stores and directories of a test."""
    monkeypatch.setenv("TCCACHE_TRUST", "store")
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    yield
    assert not list((tmp_path / "tmp").glob("*"))
    assert not list(tmp_path.rglob(".tmp-*"))
    assert not list(tmp_path.rglob(".tccache-stage-*"))


def _pushes(place: str, goods: Goods, letters: str, shared: str = "") -> list[tuple[str, Any]]:
    made = [goods(letter, letter + shared) for letter in letters]
    return [(PUSH, {"store": place, "goods": folder}) for folder in made]


def _pulls(place: str, folder: Path, number: int) -> list[tuple[str, Any]]:
    return [(PULL, {"store": place, "live": folder / f"live{n}"}) for n in range(number)]


def _held(place: str, folder: Path) -> dict[str, str]:
    """What a new machine gets of the store, all of which is as it should be."""
    assert cachesvc.verify(store=place).problems == ()
    cachesvc.pull("m", store=place, triton_dir=folder / "new", require=True)
    return makers(folder / "new")


def test_pushers_at_once(place: str, goods: Goods, race: Race, tmp_path: Path) -> None:
    """Eight processes push a kernel of their own and one that all have: all nine are there, each
    whole from one of them, and the next push makes one segment of it."""
    segments = race(*_pushes(place, goods, "ABCDEFGH", shared="S"))
    assert len(set(segments) - {None}) > 1
    held = _held(place, tmp_path)
    shared = held.pop("S")
    assert shared in held
    assert held == {letter: letter for letter in "ABCDEFGH"}
    cachesvc.push("m", store=place, triton_dir=goods("last", "Z"))
    assert len(cachesvc.show("m", store=place)[0].segments) == 1


def test_pushers_beside_pullers(place: str, goods: Goods, race: Race, tmp_path: Path) -> None:
    """Whoever pulls beside four pushers gets what was there before, and of the rest whole kernels
    only; the second time, what each of them has got is still there."""
    cachesvc.push("m", store=place, triton_dir=goods("base", "X"))
    for letters in ("ABCD", "EFGH"):
        race(*_pushes(place, goods, letters), *_pulls(place, tmp_path, 6))
        for number in range(6):
            got = makers(tmp_path / f"live{number}")
            assert got.pop("X") == "base"
            assert all(letter == maker for letter, maker in got.items())
            assert set(got) >= (set("ABCD") if letters == "EFGH" else set())
    assert set(_held(place, tmp_path)) == set("ABCDEFGHX")


def _old(store: Path) -> None:
    """All that is in a store was written two days ago."""
    for file in store.rglob("*"):
        os.utime(file, (time() - 2 * 86_400,) * 2)


@pytest.fixture
def old(tmp_path: Path, goods: Goods, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with superseded segments and unmerged additions that are two days old."""
    place = tmp_path / "store"
    for letter in "PQRST":
        cachesvc.push("m", store=place, triton_dir=goods(letter, letter))
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "MERGE_LIMIT_BYTES", 0)
        for letter in "UVW":
            cachesvc.push("m", store=place, triton_dir=goods(letter, letter))
    _old(place)
    return str(place)


def test_a_janitor_beside_pushers_and_pullers(
    old: str, goods: Goods, race: Race, tmp_path: Path
) -> None:
    """Three janitors delete and merge what is old while four push and six pull: nobody fails,
    nobody misses a kernel that was there, and what should go is gone."""
    before = set("PQRSTUVW")
    objects = len(list(DirectoryStore(old).list()))
    collected = race(
        *[(COLLECT, {"store": old, "times": 4})] * 3,
        *_pushes(old, goods, "ABCD"),
        *_pulls(old, tmp_path, 6),
    )[:3]
    assert sum(collected) >= 8
    assert objects == 2 * 8 + 1
    for number in range(6):
        assert set(makers(tmp_path / f"live{number}")) >= before
    assert set(_held(old, tmp_path)) == before | set("ABCD")


def test_a_repair_beside_pushers(old: str, goods: Goods, race: Race, tmp_path: Path) -> None:
    """A pack is damaged, two janitors repair the store and four processes push: each push is there,
    and when it is done again what was in the pack is, too."""
    pack = max(Path(old).rglob("*.tar.zst"), key=lambda file: file.stat().st_size)
    pack.write_bytes(pack.read_bytes()[:-1] + b"?")
    given = [{"store": old, "goods": goods(letter, letter + "PQRSTUVW")} for letter in "ABCD"]
    told = race(*[(REPAIR, {"store": old})] * 2, *[(PUSH, each) for each in given])
    assert sum(told[:2]) >= 1
    assert None not in told[2:]
    race(*[(PUSH, each) for each in given])
    assert set(_held(old, tmp_path)) == set("ABCDPQRSTUVW")


def test_pullers_of_one_directory(place: str, goods: Goods, race: Race, tmp_path: Path) -> None:
    """Of twelve processes that pull into one directory one brings the pack, and eleven find all in
    place."""
    cachesvc.push("m", store=place, triton_dir=goods("maker", "ABC"))
    told = race(*[(PULL, {"store": place, "live": tmp_path / "live"})] * 12)
    assert sorted(told) == [[0, 0, 3]] * 11 + [[1, 3, 0]]
    assert makers(tmp_path / "live") == dict.fromkeys("ABC", "maker")


def test_seeders_of_several_bundles(place: str, goods: Goods, race: Race, tmp_path: Path) -> None:
    """Eight processes pull four bundles, which have a kernel in common, into one directory: all of
    them is there, and the common one whole from one bundle."""
    names = "ABCD"
    script = PULL.replace('"m"', 'given["name"]')
    for name in names:
        cachesvc.push(name, store=place, triton_dir=goods(name, name + "S"))
    given = [{"store": place, "live": tmp_path / "live", "name": name} for name in names * 2]
    race(*[(script, each) for each in given])
    held = makers(tmp_path / "live")
    assert held.pop("S") in names
    assert held == {name: name for name in names}
