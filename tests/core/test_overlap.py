"""The ledger of a prefetch."""

from __future__ import annotations

import json

import pytest

from cachesvc.core.overlap import Overlap, Span, Stage, stages


@pytest.mark.parametrize(
    ("span", "hidden", "waited"),
    [
        (Span("pull", 1, 4), 3, 0),
        (Span("pull", 1, 10), 9, 0),
        (Span("pull", 8, 16), 2, 4),
        (Span("pull", 13, 15), 0, 2),
        (Span("pull", 10, 11), 0, 0),
        (Span("pull", 15, 22), 0, 3),
        (Span("pull", 30, 31), 0, 0),
    ],
)
def test_what_was_hidden_and_what_was_waited_for(span: Span, hidden: float, waited: float) -> None:
    """A start that was called at 10 and waited from 12 to 16 and from 20 to 25: what had passed by
    10 was hidden, and only what passed while it waited was waited for."""
    (found,) = stages([span], called=10, waits=[(12, 16), (20, 25)])
    assert found == Stage("pull", span.ended - span.begun, hidden, waited)


def test_stages_are_added_up() -> None:
    """By name, in the order in which they began."""
    spans = [Span("pull", 0, 1), Span("seed", 1, 2), Span("pull", 2, 5), Span("seed", 5, 6)]
    found = stages(spans, called=4, waits=[(4, 6)])
    assert found == (Stage("pull", 4, 3, 1), Stage("seed", 2, 1, 1))
    ledger = Overlap(found, packs=2, bytes=70)
    assert (ledger.hidden_s, ledger.waited_s) == (4, 2)


def test_in_words_and_as_json() -> None:
    """One line for people, plain values for programs, and trouble in both."""
    ledger = Overlap(
        (Stage("pull", 2.0, 1.5, 0.25),), packs=1, bytes=5, trouble="the store is away"
    )
    assert str(ledger) == ("prefetched: pull 2.00 s (1.50 hidden, 0.25 waited); the store is away")
    assert str(Overlap()) == "prefetched: nothing yet"
    assert json.loads(json.dumps(ledger.to_json())) == {
        "stages": {"pull": {"seconds": 2.0, "hidden_s": 1.5, "waited_s": 0.25}},
        "packs": 1,
        "bytes": 5,
        "hidden_s": 1.5,
        "waited_s": 0.25,
        "trouble": "the store is away",
    }
