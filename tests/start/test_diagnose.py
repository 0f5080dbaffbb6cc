"""Findings from what two starts have left: reports as they are in JSON, and traces."""

from __future__ import annotations

import os
from typing import Any

import pytest

from cachesvc.core.finding import Finding
from cachesvc.core.incident import Incident
from cachesvc.core.report import CallReport, Counts, Report
from cachesvc.runtime.trace import Break, Compile, Lookup, Trace
from cachesvc.start.diagnose import Examined, diagnose, refusal

HERE = f"{os.getcwd()}/app.py"
FORWARD = f"{HERE}:6 in forward"
COLD = Counts(graphs=1, graph_misses=1, autograd_misses=1, generated=1)
WARM = Counts(graphs=1, graph_hits=1, autograd_hits=1)


def start(
    counts: Counts = COLD,
    *,
    trace: Trace | None = None,
    incidents: tuple[Incident, ...] = (),
    notes: tuple[str, ...] = (),
    **settings: Any,
) -> Examined:
    report = Report(
        name="m",
        read_counts=lambda: counts,
        read_incidents=lambda: incidents,
        called=True,
        calls=(CallReport("(float32[2, 4])", 1.0, counts),),
        notes=notes,
    )
    return Examined(report.to_json(), trace or Trace(), **{"recompile_limit": 8, **settings})


def found(cold: Examined, local: Examined | None = None, **environ: str) -> list[Finding]:
    return list(diagnose(cold, local or start(WARM), environ))


def kinds(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(item.kind, item.severity) for item in findings]


def recompiled(number: int, guard: str) -> tuple[Compile, ...]:
    """As many compiles of a function after its first one."""
    versions = (Compile("0", n, FORWARD, guard) for n in range(1, number + 1))
    return (Compile("0", 0, FORWARD), *versions)


def test_healthy() -> None:
    """A cold start that left all that the next one needed."""
    assert found(start()) == []


def test_graph_breaks_at_one_place_are_one_finding() -> None:
    """Counted; the path is told from the working directory."""
    broken = Break(f"{HERE}:8", "it prints", "Failed to trace builtin operator `print`")
    (item,) = found(start(trace=Trace(breaks=(broken, broken))))
    assert (item.kind, item.where, item.count) == ("graph break", "app.py:8", 2)


def test_a_graph_break_that_was_asked_for_is_a_hint() -> None:
    """The user has put it there."""
    asked = Break(f"{HERE}:8", "Call to `graph_break()`", "Call to `torch._dynamo.graph_break()`")
    assert kinds(found(start(trace=Trace(breaks=(asked,))))) == [("graph break", "hint")]


def test_without_a_trace_the_counters_tell() -> None:
    """A torch that writes none, or in another form: the places are not as exact."""
    incidents = (
        Incident("graph break", "Data-dependent branching", "app.py:8 in forward", 2),
        Incident("graph break", "Dynamo recompile limit exceeded"),
        Incident("recompile", "tensor 'x' size mismatch at index 0. expected 2, actual 3", "f", 3),
    )
    broken, recompile = found(start(incidents=incidents))
    assert (broken.where, broken.count) == ("app.py:8 in forward", 2)
    assert "torch.where" in broken.cure
    assert (recompile.kind, recompile.count) == ("recompile", 3)
    assert "mark_dynamic(x, 0)" in recompile.cure


def test_a_recompile_that_nothing_cures_is_a_hint() -> None:
    """Until the limit is near: then something must be done."""
    reason = "0/0: something new in torch"
    few = found(start(trace=Trace(compiles=recompiled(3, reason))))
    many = found(start(trace=Trace(compiles=recompiled(4, reason))))
    assert kinds(few) == [("recompile", "hint")]
    assert kinds(many) == [("recompile", "disease")]
    assert "4 of 8 versions are used" in few[0].what
    assert (few[0].where, few[0].count) == ("app.py:6 in forward", 3)


def test_the_limit() -> None:
    """The attempt that it refused is no version, and names no function itself."""
    size = "0/7: tensor 'x' size mismatch at index 0. expected 9, actual 10"
    refused = Compile("0", 8, "", size, refused=True)
    limit, recompile = found(start(trace=Trace(compiles=(*recompiled(7, size), refused))))
    assert (limit.kind, limit.where, limit.count) == ("recompile limit", "app.py:6 in forward", 1)
    assert limit.what.startswith("8 of 8 versions are used: for further inputs this runs as it was")
    assert (recompile.kind, recompile.count) == ("recompile", 7)
    assert "8 of 8 versions are used" in recompile.what


def test_recompiles_for_two_reasons_are_two_findings() -> None:
    """Each with its own cure; the versions are those of the function."""
    compiles = (
        Compile("0", 0, FORWARD),
        Compile("0", 1, FORWARD, "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3"),
        Compile("0", 2, FORWARD, "0/1: n == 0.5"),
    )
    sizes, values = found(start(trace=Trace(compiles=compiles), recompile_limit=None))
    assert "mark_dynamic(x, 0)" in sizes.cure
    assert "torch.tensor(0.5)" in values.cure
    assert all(item.what.endswith("3 versions are used") for item in (sizes, values))


def test_a_bypass_names_the_function() -> None:
    """Which the trace knows and the counters do not."""
    trace = Trace(
        compiles=(Compile("0", 0), Compile("1", 0, FORWARD)),
        lookups=(Lookup("Inductor", "bypass", "1/0", "Failed to pickle cache key"),),
    )
    incident = Incident("bypass Inductor", "Failed to pickle cache key.", count=2)
    (item,) = found(start(trace=trace, incidents=(incident,)))
    assert (item.kind, item.where, item.count) == ("bypass Inductor", "app.py:6 in forward", 2)
    assert item.what == "Failed to pickle cache key; no cache keeps such a graph: each start" + (
        " compiles it"
    )


@pytest.mark.parametrize("named", [True, False])
def test_a_setting_is_told_once(named: bool) -> None:
    """Where a variable sets it, the variable has been named; what follows is not told besides."""
    off = ("torch.compiler.config.force_disable_caches = True",)
    environ = {"TORCH_COMPILE_FORCE_DISABLE_CACHES": "1"} if named else {}
    incident = Incident("bypass AOTAutograd", "FX graph cache is not enabled")
    cold = start(switched_off=off, incidents=(incident,))
    assert kinds(found(cold, start(COLD), **environ)) == ([] if named else [("setting", "disease")])


def test_compiled_again() -> None:
    """What differs between the keys of one graph in two starts is named, and where it belongs."""
    before = Lookup("Inductor", "miss", "0/0", components={"gm": "a", "x": "b", "gone": "c"})
    after = Lookup("Inductor", "miss", "0/0", components={"gm": "d", "x": "b", "new": "e"})
    compiles = (Compile("0", 0, FORWARD),)
    (item,) = found(
        start(trace=Trace(compiles=compiles, lookups=(before,))),
        start(COLD, trace=Trace(compiles=compiles, lookups=(after,))),
    )
    assert (item.kind, item.where) == ("compiled again", "app.py:6 in forward")
    assert item.what.endswith("differs from process to process in gm, gone, new")


def test_compiled_again_for_no_known_reason() -> None:
    """It is told all the same, with where to look; a graph that no cache keeps has its own name."""
    (item,) = found(start(), start(COLD))
    assert "--trace DIR" in item.cure
    bypassed = Counts(graphs=1, graph_bypasses=1, generated=1)
    assert found(start(), start(bypassed)) == []


def test_what_else_the_second_start_did_again() -> None:
    """Native code, measuring, tracing: each although the graphs came from the cache."""
    for counts, trace, kind in (
        (Counts(graphs=1, graph_hits=1, autograd_hits=1, cpp_builds=2), Trace(), "built again"),
        (WARM, Trace(tuning_s=1.5), "autotuned again"),
        (Counts(graphs=1, graph_hits=1, autograd_misses=1), Trace(), "traced again"),
    ):
        assert kinds(found(start(), start(counts, trace=trace))) == [(kind, "disease")]


def test_a_measurement_of_the_first_start_is_not_held_against_a_hit() -> None:
    """torch adds the counts of a graph's compile to its counters when the graph is found."""
    assert found(start(), start(Counts(graphs=1, graph_hits=1, autotunings=3))) == []


def test_what_the_first_start_could_not_do() -> None:
    """Write an entry; compile for want of a compiler; compile anything at all."""
    unsaved = Counts(graphs=1, graph_misses=1, generated=1, unsaved=2)
    eager = Counts(graphs=1, graph_misses=1, eager=1)
    assert kinds(found(start(unsaved))) == [("not saved", "disease")]
    assert kinds(found(start(eager, notes=("no C++ compiler (g++) on PATH",)))) == [
        ("eager graph", "disease")
    ]
    assert kinds(found(start(Counts()))) == [("nothing compiled", "disease")]
    assert found(start(Counts()), TORCHDYNAMO_DISABLE="1") == []


def test_cuda_graphs_that_were_not_captured() -> None:
    """One hint for each reason."""
    skipped = tuple(Compile("0", n, FORWARD, cudagraph_skip="mutated inputs") for n in (0, 1))
    (item,) = found(start(trace=Trace(compiles=skipped)))
    assert (item.kind, item.severity, item.count) == ("no CUDA graph", "hint", 2)
    assert "mutated inputs" in item.what


def test_notes_and_missing_counters_are_hints() -> None:
    """Long texts are cut, on one line."""
    cold = start(Counts(graphs=1, graph_misses=1, unread=("a.b",)), notes=("word\n" * 200,))
    note, unread = found(cold)
    assert (note.kind, unread.kind) == ("note", "not counted")
    assert len(note.what) == 300
    assert note.what.startswith("word word ")
    assert "a.b" in unread.what


def test_a_graph_break_that_is_not_allowed() -> None:
    """Under fullgraph=True torch raises; the place and the cure are in its words."""
    item = refusal(
        "the cold start of app:w failed: an example call failed: Unsupported: Data-dependent branch"
        "\n  Explanation: Detected it.\n  Hint: Use `torch.cond`.\n\nfrom user code:\n"
        f'   File "{HERE}", line 9, in forward\n    if x.sum() > 0: print(x)\n\nSet TORCHDYNAMO...'
    )
    assert item is not None
    assert (item.kind, item.severity, item.where) == ("graph break", "disease", "app.py:9")
    assert item.what.endswith("fullgraph=True allows none: Data-dependent branch (Detected it.)")
    assert "torch.where" in item.cure
    assert refusal("an example call failed: ValueError: no batch of 2") is None
