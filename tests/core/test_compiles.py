"""Compiles after a start: what came of each, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachesvc.core.compiles import OUTCOMES, Compile, Tally
from cachesvc.core.report import Counts

MADE = Compile(
    kind="recompile",
    function="app.py:3 in forward",
    call="(float32[3, 4])",
    caller="serve.py:7 in answer",
    reason="tensor 'x' size mismatch",
    seconds=1.5,
    when=1.0,
    counts=Counts(graphs=1, graph_misses=1, cpp_builds=2),
    entries=2,
    limit=8,
    thread="MainThread",
)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "compiled"),
        ({"counts": Counts(graph_hits=1, autograd_hits=1)}, "hit"),
        ({"counts": Counts(autograd_hits=1)}, "hit"),
        ({"counts": Counts(graph_hits=1, graph_misses=1)}, "compiled"),
        ({"counts": Counts(graph_hits=1, cpp_builds=1)}, "compiled"),
        ({"counts": Counts(graph_hits=1, triton_builds=1)}, "compiled"),
        ({"counts": Counts(graph_hits=1, autotunings=1)}, "compiled"),
        ({"counts": Counts(graphs=1)}, "traced"),
        ({"counts": Counts(generated=1, graph_misses=1, eager=1)}, "eager"),
        ({"failure": "Unsupported: no"}, "failed"),
        ({"failure": "Unsupported: no", "as_written": True}, "eager"),
        ({"kind": "recording", "counts": Counts()}, "recorded"),
    ],
)
def test_outcomes(changes: dict[str, object], outcome: str) -> None:
    """A hit is only what was found in every layer, with nothing native built and nothing tuned."""
    made = replace(MADE, **changes)  # type: ignore[arg-type]
    assert made.outcome == outcome
    assert outcome in OUTCOMES


def test_a_compile_in_one_line() -> None:
    """What, for which call, from where, why, and how near the limit is."""
    assert str(MADE) == (
        "compiled in 1.50 s: recompile of app.py:3 in forward for (float32[3, 4])"
        " at serve.py:7 in answer; 2 native builds; tensor 'x' size mismatch"
        " (2 of 8 versions were there)"
    )
    uncovered = replace(MADE, covered=False, failure="E: no", counts=Counts(autotunings=3))
    assert ", a call that the start was not given; 3 autotunings; " in str(uncovered)
    assert str(uncovered).endswith("; E: no")
    bypassed = replace(MADE, counts=Counts(graph_bypasses=1, generated=1))
    assert "; no cache keeps it: each start compiles it; tensor 'x'" in str(bypassed)
    assert str(Compile("backward", "graph 0/0")) == "traced in 0.00 s: backward of graph 0/0"


def test_a_call_with_very_much_in_it() -> None:
    """It is cut where people read it, and whole for programs, who compare it."""
    long = replace(MADE, call=f"({'int, ' * 1000}int)")
    assert len(str(long)) < 1300
    assert long.to_json()["call"] == long.call


def test_json() -> None:
    """Its fields are an interface: they are only ever added."""
    value = MADE.to_json()
    assert set(value) == {
        *("kind", "outcome", "function", "call", "caller", "reason", "failure", "seconds"),
        *("when", "counts", "entries", "limit", "thread", "covered"),
    }
    assert value["outcome"] == "compiled"
    assert value["counts"]["native_builds"] == 2  # type: ignore[index, call-overload]


def test_a_tally() -> None:
    """All are counted: by outcome, with counts and seconds in all, and what each outcome means."""
    hit = replace(MADE, counts=Counts(graph_hits=1), seconds=0.25)
    tally = Tally().plus(hit).plus(MADE).plus(MADE)
    assert str(tally) == "3 compiles in 3.2 s: 2 compiled, 1 hit"
    assert str(Tally().plus(hit)) == "1 compile in 0.2 s: 1 hit"
    assert str(Tally()) == "nothing was compiled"
    assert (tally.number, tally.counts.graph_hits, tally.counts.cpp_builds) == (3, 1, 4)
    assert [text.partition(":")[0] for text in tally.meanings()] == ["compiled", "hit"]
    assert tally.to_json()["outcomes"] == {"compiled": 2, "hit": 1}
