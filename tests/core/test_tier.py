"""Tiers: which a caller allows, and the best of them that a bundle holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.errors import UsageError
from cachesvc.core.tier import ANY, TIERS, Allowed, allowed


@pytest.mark.parametrize(
    ("text", "tiers"),
    [
        ("auto", TIERS),
        ("aot", ("aot",)),
        ("aot,megacache", ("megacache", "aot")),
        (" directories , aot ", ("directories", "aot")),
        ("no-aot", ("megacache", "directories")),
        ("auto,no-megacache", ("directories", "aot")),
        ("no-aot,no-megacache", ("directories",)),
        ("aot,directories,no-aot", ("directories",)),
    ],
)
def test_what_a_word_allows(text: str, tiers: tuple[str, ...]) -> None:
    """One, several, or all but some; what was said is kept as it was said."""
    assert allowed(text) == Allowed(tiers, text)


@pytest.mark.parametrize(
    "text", ["", ",", "fast", "AOT", "no-", "no-auto", "aot,fast", "no-fast", "aot,no-aot", "no no"]
)
def test_what_allows_nothing(text: str) -> None:
    """An unknown word, none at all, or all of them denied: the message says what there is."""
    with pytest.raises(UsageError, match="say auto, one of megacache, directories, aot") as caught:
        allowed(text)
    assert repr(text) in str(caught.value)


@given(st.sets(st.sampled_from(TIERS), min_size=1), st.sets(st.sampled_from(TIERS)))
def test_the_best_tier(wanted: set[str], held: set[str]) -> None:
    """The last one of the order that is both allowed and there, whatever order they come in."""
    both = [tier for tier in TIERS if tier in wanted & held]
    assert allowed(",".join(wanted)).best(held) == (both[-1] if both else None)
    assert ANY.best(held) == next((t for t in reversed(TIERS) if t in held), None)


def test_what_is_in_it() -> None:
    """`in` asks for one tier."""
    assert "aot" in ANY
    assert "aot" not in allowed("no-aot")
