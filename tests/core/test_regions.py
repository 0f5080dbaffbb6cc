"""What regional compilation chose, as text and as JSON."""

from __future__ import annotations

import pytest

from cachesvc.core.regions import Region, Regions, spans

LAYERS = Region("Layer", tuple(f"layers.{n}" for n in range(3)), 1200, ("index",))
STAGE = Region("Block", ("stage.1", "stage.2"), 50)


def regions(*kinds: Region, **fields: object) -> Regions:
    values = {"parameters": 4000, "outside": 300, "alone": ("token", "head"), **fields}
    return Regions("Net", kinds, **values)  # type: ignore[arg-type]


def test_text() -> None:
    """A line for each kind with its count, class, places, size and differences; then the rest."""
    assert str(regions(LAYERS, STAGE, notes=("mark each step",))) == (
        "5 blocks of Net, of 2 kinds: 92.5% of its parameters\n"
        "  3 x Layer at layers.0-2: 1,200 parameters each, which differ in index\n"
        "  2 x Block at stage.1-2: 50 parameters each\n"
        "  left alone, 7.5% of the parameters: token, head\n"
        "  mark each step"
    )


def test_one_kind_and_nothing_left() -> None:
    """One kind is one kind, a model without parameters has no share, and an empty rest no line."""
    text = str(regions(STAGE, parameters=0, outside=0, alone=()))
    assert text.splitlines()[0] == "2 blocks of Net, of 1 kind: 0.0% of its parameters"
    assert "left alone" not in text


def test_a_long_rest_is_cut() -> None:
    """Six names are enough, the others are counted."""
    text = str(regions(STAGE, alone=tuple("abcdefgh")))
    assert text.endswith("parameters: a, b, c, d, e, f and 2 more")


def test_nothing_repeats() -> None:
    """Without kinds the text says that nothing is compiled, and what to call instead."""
    text = str(regions())
    assert text.startswith("no block of Net repeats: nothing is compiled\n")
    assert "torch.compile(model)" in text
    assert regions().count == 0


def test_json() -> None:
    """Everything is there, all places too."""
    assert regions(LAYERS).to_json() == {
        "model": "Net",
        "kinds": [
            {
                "kind": "Layer",
                "count": 3,
                "places": ["layers.0", "layers.1", "layers.2"],
                "parameters": 1200,
                "differ": ["index"],
            }
        ],
        "parameters": 4000,
        "outside": 300,
        "alone": ["token", "head"],
        "notes": [],
    }


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ((), ""),
        (("block",), "block"),
        (("first", "second"), "first, second"),
        (("0", "1"), "0-1"),
        (("layers.0", "layers.1", "layers.3"), "layers.0-1/3"),
        (("layers.10", "layers.11"), "layers.10-11"),
        (("a.0.b.1", "a.0.b.2", "a.1.b.0"), "a.0.b.1-2, a.1.b.0"),
        (("a.0.block", "a.1.block"), "a.0-1.block"),
        (("block1", "block2"), "block1, block2"),
    ],
)
def test_places_in_short(places: tuple[str, ...], text: str) -> None:
    """Numbers that follow each other become a range; a number within a name is part of it."""
    assert spans(places) == text
