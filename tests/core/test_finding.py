"""A diagnosis: its gist in one line, then diseases, then hints."""

from __future__ import annotations

from cachesvc.core.finding import Diagnosis, Finding

SICK = Finding("graph break", "disease", "it prints", "app.py:3", "remove it", count=2)
HINT = Finding("other cache", "hint", "7 files")


def test_healthy_is_one_line() -> None:
    """With the gist of the facts; of the machine where there is no target."""
    assert str(Diagnosis("demo:gpt", told=("1 graph", "2 s"))) == "healthy: demo:gpt, 1 graph, 2 s"
    assert str(Diagnosis(None)) == "healthy: this machine"


def test_hints_make_nobody_sick() -> None:
    """They are told below the line."""
    found = Diagnosis("demo:gpt", (HINT,))
    assert found.healthy
    assert found.sentences == ("healthy: demo:gpt", "  hint, other cache: 7 files")


def test_diseases_come_first_with_their_cures() -> None:
    """A line for the finding, with how often and where, and one for the cure."""
    found = Diagnosis("demo:gpt", (HINT, SICK), told=("1 graph", "2 s"))
    assert not found.healthy
    assert found.sentences == (
        "demo:gpt: 1 disease, 1 hint",
        "  disease, graph break 2 times at app.py:3: it prints",
        "    cure: remove it",
        "  hint, other cache: 7 files",
        "  1 graph",
        "  2 s",
    )
    assert Diagnosis(None, (SICK, SICK)).sentences[0] == "this machine: 2 diseases"


def test_of_many_the_first_are_told() -> None:
    """A model with a hundred breaks still fits on a screen; the gist counts them all."""
    lines = Diagnosis(None, (SICK,) * 12).sentences
    assert lines[0] == "this machine: 12 diseases"
    assert len(lines) == 1 + 2 * 5 + 1
    assert lines[-1] == "  disease, graph break: 7 more, which JSON tells"


def test_json() -> None:
    """Its fields are an interface: they are only ever added."""
    told = Diagnosis(None, (SICK,), {"machine": {"torch": None}}).to_json()
    assert told == {
        "target": None,
        "healthy": False,
        "findings": [
            {
                "kind": "graph break",
                "severity": "disease",
                "what": "it prints",
                "where": "app.py:3",
                "cure": "remove it",
                "count": 2,
            }
        ],
        "facts": {"machine": {"torch": None}},
    }
