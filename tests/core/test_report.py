"""Verdicts from counts, and the report that says them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.incident import Incident
from cachesvc.core.report import CallReport, Counts, Report, Transfer, Verdict, judge, megabytes

HIT = Counts(graphs=3, graph_hits=3, autograd_hits=3)
MISS = Counts(graphs=3, graph_misses=3, autograd_misses=3, generated=3)
BUNDLED = Counts(graphs=3, autograd_hits=3)
NOTHING = Counts()


@pytest.mark.parametrize(
    ("counts", "called", "seeded", "before", "verdict"),
    [
        # No call yet.
        (NOTHING, False, False, False, "unproven"),
        (NOTHING, False, True, False, "unproven"),
        (Counts(triton_builds=1), False, True, False, "unproven"),
        # It settles at the first calls, whoever makes them.
        (HIT, False, True, False, "warm"),
        (MISS, False, True, False, "inert"),
        (MISS, False, False, False, "cold"),
        # Everything came from the cache.
        (HIT, True, True, False, "warm"),
        (HIT, True, False, False, "warm"),
        (HIT, True, True, True, "warm"),
        (BUNDLED, True, True, False, "warm"),
        (replace(HIT, graph_hits=6), True, True, False, "warm"),
        # Counters say hit, and yet something was compiled, traced, built or tuned.
        (replace(HIT, cpp_builds=17), True, True, False, "partial"),
        (replace(HIT, triton_builds=1), True, True, False, "partial"),
        (replace(BUNDLED, cpp_builds=1), True, True, False, "partial"),
        (replace(HIT, autotunings=1), True, True, False, "partial"),
        (replace(HIT, autograd_misses=1), True, True, False, "partial"),
        (replace(HIT, autograd_bypasses=1), True, True, False, "partial"),
        (replace(HIT, graph_misses=1), True, True, False, "partial"),
        (replace(HIT, graph_bypasses=1), True, True, False, "partial"),
        (replace(HIT, generated=1), True, True, False, "partial"),
        (replace(HIT, graph_misses=1), True, False, False, "partial"),
        # A counter that this torch lacks proves nothing, but what was seen stands.
        (replace(HIT, unread=("x",)), True, True, False, "unproven"),
        (replace(HIT, unread=("x",), cpp_builds=1), True, True, False, "partial"),
        (replace(MISS, unread=("x",)), True, False, False, "cold"),
        # Nothing came from the cache.
        (MISS, True, False, False, "cold"),
        (MISS, True, True, False, "inert"),
        (replace(MISS, cpp_hits=2), True, True, False, "partial"),
        # Without a C++ compiler.
        (replace(MISS, eager=3), True, False, False, "eager"),
        (replace(MISS, eager=2), True, False, False, "cold"),
        (replace(HIT, eager=1), True, True, False, "partial"),
        (Counts(graphs=1, graph_bypasses=1), True, True, False, "inert"),
        (Counts(graphs=1, generated=1), True, False, False, "cold"),
        (Counts(graphs=1, generated=1), True, True, False, "inert"),
        (Counts(cpp_builds=1), True, False, False, "cold"),
        (Counts(triton_builds=1), True, True, False, "inert"),
        # Nothing was asked of the compiler.
        (NOTHING, True, False, False, "eager"),
        (NOTHING, True, True, False, "eager"),
        (Counts(graphs=2), True, True, False, "eager"),
        (Counts(graphs=2), False, True, False, "eager"),
        (Counts(graphs=2), True, True, True, "eager"),
        (NOTHING, True, True, True, "unproven"),
    ],
)
def test_judge(counts: Counts, called: bool, seeded: bool, before: bool, verdict: str) -> None:
    """Each verdict is said for just the counts that prove it."""
    assert judge(counts, called=called, seeded=seeded, compiled_before=before) == Verdict(verdict)


NUMBERS = st.sampled_from([0, 0, 1, 2])
COUNTS = st.builds(
    Counts,
    *[NUMBERS] * 15,
    unread=st.sampled_from([(), ("x",)]),
)


@given(COUNTS, st.booleans(), st.booleans(), st.booleans())
def test_warm_is_never_said_in_vain(
    counts: Counts, called: bool, seeded: bool, before: bool
) -> None:
    """A warm start hit, compiled nothing, built nothing, tuned nothing, and all of it was seen."""
    if judge(counts, called=called, seeded=seeded, compiled_before=before) is Verdict.WARM:
        assert counts.hits
        assert not counts.compiled
        assert not counts.native_builds
        assert not counts.autotunings
        assert not counts.eager
        assert not counts.unread


@given(COUNTS, COUNTS)
def test_counts_add_up(before: Counts, since: Counts) -> None:
    """What was counted since a moment is the total less what was counted until then."""
    total = before.plus(since)
    assert total.minus(before) == replace(since, unread=total.unread)


def _report(counts: Counts, **fields: object) -> Report:
    return Report(name="gpt", read_counts=lambda: counts, **fields)  # type: ignore[arg-type]


PULLED = Transfer(packs=1, bytes=1_900_000, seeded=40, in_place=2, pull_s=0.15, seed_s=0.05)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            _report(HIT, called=True, bundle="b", transfer=PULLED, first_call_s=1.02, cold_s=47.4),
            "warm: 1.9 MB in 0.2 s, 3/3 graphs from cache, 0 compiled, first call 1.02 s"
            " (cold was 47.4 s)",
        ),
        (
            _report(HIT, called=True, bundle="b", transfer=Transfer(in_place=42), first_call_s=1.0),
            "warm: 42 units in place, 3/3 graphs from cache, 0 compiled, first call 1.00 s",
        ),
        (
            _report(MISS, called=True, first_call_s=50.0),
            "cold: nothing pulled, 0/3 graphs from cache, 3 compiled, first call 50.00 s\n"
            "  3 graphs were compiled here: publish this start to have them cached",
        ),
        (_report(NOTHING), "unproven: nothing pulled, no call yet"),
        (
            _report(NOTHING, bundle="b", transfer=PULLED),
            "unproven: 1.9 MB in 0.2 s, no call yet",
        ),
        (
            _report(NOTHING, called=True, first_call_s=0.1, notes=("one", "two")),
            "eager: nothing pulled, first call 0.10 s\n  one\n  two",
        ),
    ],
)
def test_text(report: Report, text: str) -> None:
    """A report is one line of facts behind its verdict, then a line for each note."""
    assert str(report) == text


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        (
            replace(HIT, graph_bypasses=2),
            "Inductor cannot cache 2 graphs; each start compiles them",
        ),
        (replace(HIT, generated=1), "a setting or flag switches the cache off"),
        (replace(HIT, autograd_bypasses=1), "AOTAutograd cannot cache 1 graphs"),
        (replace(HIT, autograd_misses=2), "AOTAutograd had no entry for 2 graphs"),
        (replace(HIT, cpp_builds=1, triton_builds=2), "native code was built 3 times"),
        (replace(HIT, autotunings=4), "4 autotunings were measured again"),
        (replace(HIT, eager=2), "2 graphs could not be compiled here and run as they were"),
        (replace(HIT, unsaved=2), "2 graphs were compiled and could not be saved"),
        (replace(HIT, graph_breaks=5), "5 graph breaks split the model"),
        (replace(HIT, unread=("a", "b")), "not counted here: a, b; so warmth is not proven"),
    ],
)
def test_each_count_that_costs_has_its_sentence(counts: Counts, line: str) -> None:
    """Whatever keeps a start from being warm is told with what it means."""
    assert line in str(_report(counts, called=True))
    assert line not in str(_report(HIT, called=True))


def test_it_settles_by_itself() -> None:
    """A report made before any call reads the counters each time that it is asked."""
    now = [NOTHING]
    report = Report(name="gpt", read_counts=lambda: now[0], transfer=PULLED)
    assert report.verdict is Verdict.UNPROVEN
    now[0] = HIT
    assert report.verdict is Verdict.WARM
    now[0] = replace(HIT, cpp_builds=1)
    assert str(report).startswith("partial: ")


def test_json() -> None:
    """The report as JSON carries the verdict, every count and every figure of the transfer."""
    report = _report(
        replace(HIT, unread=("x",)),
        called=True,
        transfer=replace(PULLED, left_out=("u",)),
        stages=(("pull", 0.1),),
        calls=(CallReport("(float32[8])", 0.5, HIT, covered=True, checked="equal"),),
        read_incidents=lambda: (Incident("recompile", "size mismatch", "app.py:3 in forward"),),
    )
    value = json.loads(json.dumps(report.to_json()))
    assert value["verdict"] == "unproven"
    assert value["counts"]["graph_hits"] == 3
    assert value["counts"]["native_builds"] == 0
    assert value["counts"]["unread"] == ["x"]
    assert value["transfer"]["seeded"] == 40
    assert value["transfer"]["left_out"] == ["u"]
    assert value["stages"] == {"pull": 0.1}
    assert value["coverage"] == ["(float32[8])"]
    (call,) = value["calls"]
    assert (call["verdict"], call["covered"], call["checked"]) == ("warm", True, "equal")
    assert call["counts"]["graph_hits"] == 3
    (incident,) = value["incidents"]
    assert incident["place"] == "app.py:3 in forward"
    assert "dynamic" in incident["consequence"]
    assert value["published"] is None


def test_a_call_the_bundle_was_not_made_with_is_named() -> None:
    """If it had to be compiled: then the report says which call to add."""
    calls = (
        CallReport("(float32[2])", 0.1, HIT, covered=True),
        CallReport("(float32[3])", 9.0, MISS, covered=False),
        CallReport("(float32[4])", 0.1, HIT, covered=False),
    )
    text = str(_report(HIT.plus(MISS), called=True, calls=calls))
    assert "not made with a call like (float32[3])" in text
    assert "(float32[2])" not in text
    assert "(float32[4])" not in text
    assert [call.verdict for call in calls] == ["warm", "inert", "warm"]


def test_a_call_on_code_compiled_before_is_warm() -> None:
    """The second call of a shape asks the compiler for nothing."""
    assert CallReport("()", 0.1, NOTHING).verdict is Verdict.WARM


def test_what_is_set_aside_and_published_is_told() -> None:
    """Both have their line, beside the notes."""

    class Done:
        def wait(self, timeout: float | None = None) -> bool:
            return True

        def state(self) -> str:
            return "segment 0123"

    report = _report(HIT, called=True, set_aside=("inductor/aa: broken",), publishing=Done())
    assert "set aside, inductor/aa: broken" in str(report)
    assert "publication: segment 0123" in str(report)
    assert report.to_json()["published"] == "segment 0123"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_900_000, "1.9 MB"), (2e9, "2000.0 MB")],
)
def test_megabytes(size: int, text: str) -> None:
    """Sizes are written in units of a thousand."""
    assert megabytes(int(size)) == text
