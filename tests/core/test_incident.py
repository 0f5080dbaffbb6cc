"""Incidents: what is said of them."""

from __future__ import annotations

from cachesvc.core.incident import CONSEQUENCES, Incident, sentences


def test_an_incident_in_one_line() -> None:
    """Kind, how often, where, why."""
    assert str(Incident("recompile", "sizes differ")) == "recompile: sizes differ"
    told = Incident("graph break", "a print", "app.py:3 in forward", 4)
    assert str(told) == "graph break 4 times at app.py:3 in forward: a print"


def test_each_kind_ends_with_its_consequence() -> None:
    """Once for all incidents of the kind, and no more than a few of them are told."""
    many = [Incident("recompile", f"size {number}") for number in range(5)]
    lines = sentences([*many, Incident("bypass Inductor", "no key")])
    assert lines[:4] == [
        "recompile: size 0",
        "recompile: size 1",
        "recompile: size 2",
        "recompile: 2 more",
    ]
    assert lines[4].strip() == CONSEQUENCES["recompile"]
    assert lines[5:] == ["bypass Inductor: no key", f"  {CONSEQUENCES['bypass Inductor']}"]


def test_a_kind_of_a_newer_version_has_no_consequence() -> None:
    """And is told all the same."""
    assert sentences([Incident("new kind", "why")]) == ["new kind: why"]


def test_json() -> None:
    """Every field, with the consequence spelled out."""
    value = Incident("recompile", "why", "app.py:1 in f", 2).to_json()
    assert value == {
        "kind": "recompile",
        "reason": "why",
        "place": "app.py:1 in f",
        "count": 2,
        "consequence": CONSEQUENCES["recompile"],
    }
