"""Pushes to a service that fails at each step: a reader sees all of a segment, or nothing of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

import cachesvc
from cachesvc.store.faulty import EVER
from tests.faults.conftest import BUCKET, Place
from tests.faults.proxy import Proxy, Rule, Trouble

NAMES = ("ab/cabc.py", "fxgraph/xy/fkey/hash")
STEPS = {
    "read the mark": ("GET", "/tccache.json", ""),
    "list": ("GET", f"/{BUCKET}", "list-type"),
    "write the mark": ("PUT", "/tccache.json", ""),
    "write the pack": ("PUT", ".tar.zst", ""),
    "write the manifest": ("PUT", ".json", ""),
}
steps = pytest.mark.parametrize("step", STEPS)
PASSING: tuple[Trouble, ...] = ("lost", "slow down")
LASTING: dict[Trouble, type[Exception]] = {
    "refused": cachesvc.StoreError,
    "expired": cachesvc.AccessDenied,
}

Push = Callable[[], cachesvc.Pushed]


def at(step: str, trouble: Trouble, count: int = EVER) -> Rule:
    method, suffix, query = STEPS[step]
    first = 2 if step == "write the manifest" else 1  # the mark's name ends in the same way
    return Rule(trouble, method, suffix, query, first, count)


@pytest.fixture
def push(tmp_path: Path, url: str) -> Push:
    """A push through the proxy."""
    for name in NAMES:
        (tmp_path / "tree" / name).parent.mkdir(parents=True)
        (tmp_path / "tree" / name).write_text(name)
    return lambda: cachesvc.push("m", store=url, trust="store", inductor_dir=tmp_path / "tree")


@pytest.fixture
def seen(service: str, place: Place, tmp_path: Path) -> Callable[[], list[str]]:
    """What a reader who goes past the proxy gets, into a directory of its own."""
    url = f"s3://{BUCKET}/{place.prefix}?endpoint={service}"
    numbers = itertools.count()

    def seen() -> list[str]:
        target = tmp_path / f"seen{next(numbers)}"
        cachesvc.pull("m", store=url, trust="store", inductor_dir=target)
        return [name for name in NAMES if (target / name).exists()]

    return seen


@steps
@pytest.mark.usefixtures("pauses")
def test_a_passing_trouble(
    push: Push, seen: Callable[[], list[str]], proxy: Proxy, place: Place, step: str
) -> None:
    """Done or not before the answer was lost: one segment is there, whole."""
    for trouble in PASSING:
        place.clear()
        proxy.expect(at(step, trouble, 1))
        assert push().publication.segment is not None
        assert seen() == list(NAMES)
        assert sum(key.endswith(".tar.zst") for key in place.listed()) == 1
        assert proxy.injected == {trouble: 1}


@steps
@pytest.mark.usefixtures("pauses")
def test_a_lasting_trouble(
    push: Push, seen: Callable[[], list[str]], proxy: Proxy, place: Place, step: str
) -> None:
    """The push fails, and says why; nothing of it is seen; the next one brings it all."""
    for trouble, kind in LASTING.items():
        place.clear()
        proxy.expect(at(step, trouble))
        with pytest.raises(kind, match=f"s3://{BUCKET}/{place.prefix}"):
            push()
        assert [key for key in place.listed() if key.endswith(".json")] in ([], ["tccache.json"])
        assert seen() == []
        proxy.expect()
        push()
        assert seen() == list(NAMES)


@pytest.mark.usefixtures("pauses")
def test_answers_that_are_always_lost(
    push: Push, seen: Callable[[], list[str]], proxy: Proxy, place: Place
) -> None:
    """Nobody knows whether it was written. It was, so a reader sees it all, and the next push finds
    that there is nothing to add."""
    proxy.expect(at("write the manifest", "lost"))
    with pytest.raises(cachesvc.StoreError):
        push()
    assert seen() == list(NAMES)
    proxy.expect()
    assert push().publication.segment is None
    assert sum(key.endswith(".tar.zst") for key in place.listed()) == 1
