"""Findings from what two starts have left: reports as they are in JSON, and traces."""

from __future__ import annotations

import os
from typing import Any

import pytest

from cachesvc.core.finding import Finding
from cachesvc.core.incident import Incident
from cachesvc.core.report import CallReport, Counts, Report
from cachesvc.runtime.trace import Break, CompileRecord, Lookup, Trace
from cachesvc.start.diagnose import diagnose
from cachesvc.start.examined import Examined
from cachesvc.start.failed import failure

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


def recompiled(number: int, guard: str) -> tuple[CompileRecord, ...]:
    """As many compiles of a function after its first one."""
    versions = (CompileRecord("0", n, FORWARD, guard) for n in range(1, number + 1))
    return (CompileRecord("0", 0, FORWARD), *versions)


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
    limit, broken, recompile = found(start(incidents=incidents))
    assert (limit.kind, limit.severity) == ("recompile limit", "disease")
    assert "recompile_limit" in limit.cure
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
    refused = CompileRecord("0", 8, "", size, refused=True)
    limit, recompile = found(start(trace=Trace(compiles=(*recompiled(7, size), refused))))
    assert (limit.kind, limit.where, limit.count) == ("recompile limit", "app.py:6 in forward", 1)
    assert limit.what.startswith("8 of 8 versions are used: for further inputs this runs as it was")
    assert (recompile.kind, recompile.count) == ("recompile", 7)
    assert "8 of 8 versions are used" in recompile.what


@pytest.mark.parametrize("name", ["/x/cachesvc/runtime/regions.py", "regions.py"])
def test_blocks_of_one_kind_that_differ(name: str) -> None:
    """Each has a version of the kind's function, and a limit for itself: nothing is wrong."""
    guard = "0/0: self.layer_idx == 0"
    place = f"{name}:157 in Block_0a1b2c3d"
    records = tuple(CompileRecord("0", n, place, guard if n else "") for n in range(12))
    (item,) = found(start(trace=Trace(compiles=records)))
    assert (item.kind, item.severity, item.count) == ("recompile", "hint", 11)
    assert "12 versions serve the blocks of this kind, each with a limit of its own" in item.what
    told = found(start(incidents=(Incident("recompile", guard, place),)))
    assert kinds(told) == [("recompile", "hint")]


def test_more_versions_than_the_setting_allows() -> None:
    """torch.compile was given a limit of its own: the setting's is not told, and the right one is
    where an attempt was refused."""
    size = "0/7: tensor 'x' size mismatch at index 0. expected 9, actual 10"
    (item,) = found(start(trace=Trace(compiles=recompiled(11, size))))
    assert item.what.endswith("12 versions are used")
    unknown = "0/0: something new in torch"
    assert kinds(found(start(trace=Trace(compiles=recompiled(11, unknown))))) == [
        ("recompile", "hint")
    ]
    refused = CompileRecord("0", 12, "", size, refused=True, limit=12)
    limit, recompile = found(start(trace=Trace(compiles=(*recompiled(11, size), refused))))
    assert limit.what.startswith("12 of 12 versions are used")
    assert recompile.what.endswith("12 of 12 versions are used")


def test_recompiles_for_two_reasons_are_two_findings() -> None:
    """Each with its own cure; the versions are those of the function."""
    compiles = (
        CompileRecord("0", 0, FORWARD),
        CompileRecord(
            "0", 1, FORWARD, "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3"
        ),
        CompileRecord("0", 2, FORWARD, "0/1: n == 0.5"),
    )
    sizes, values = found(start(trace=Trace(compiles=compiles), recompile_limit=None))
    assert "mark_dynamic(x, 0)" in sizes.cure
    assert "torch.tensor(0.5)" in values.cure
    assert all(item.what.endswith("3 versions are used") for item in (sizes, values))


def test_a_bypass_names_the_function() -> None:
    """Which the trace knows and the counters do not."""
    trace = Trace(
        compiles=(CompileRecord("0", 0), CompileRecord("1", 0, FORWARD)),
        lookups=(Lookup("Inductor", "bypass", "1/0", "Failed to pickle cache key"),),
    )
    incident = Incident("bypass Inductor", "Failed to pickle cache key.", count=2)
    (item,) = found(start(trace=trace, incidents=(incident,)))
    assert (item.kind, item.where, item.count) == ("bypass Inductor", "app.py:6 in forward", 2)
    assert item.what == "Failed to pickle cache key; no cache keeps such a graph: each start" + (
        " compiles it"
    )


def test_each_bypass_names_its_own_function() -> None:
    """Two reasons in one layer; a reason that no lookup has told has no place."""
    trace = Trace(
        compiles=(CompileRecord("0", 0, FORWARD), CompileRecord("1", 0, f"{HERE}:9 in g")),
        lookups=(
            Lookup("AOTAutograd", "bypass", "0/0", "Unsupported node op x"),
            Lookup("AOTAutograd", "bypass", "1/0", "Won't cache a graph\nlike this"),
            Lookup("Inductor", "bypass", "0/0", "Failed to pickle cache key"),
        ),
    )
    reasons = ("Won't cache a graph", "Failed to pickle cache key", "Unsupported node op x")
    incidents = tuple(Incident("bypass AOTAutograd", reason) for reason in reasons)
    places = [item.where for item in found(start(trace=trace, incidents=incidents))]
    assert places == ["app.py:9 in g", "", "app.py:6 in forward"]


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_a_setting_is_told_once(value: str) -> None:
    """Where a variable sets it, the variable has been named; what follows is not told besides. A
    variable that says otherwise sets nothing."""
    off = ("torch.compiler.config.force_disable_caches = True",)
    incident = Incident("bypass AOTAutograd", "FX graph cache is not enabled")
    cold = start(switched_off=off, incidents=(incident,))
    told = kinds(found(cold, start(COLD), TORCH_COMPILE_FORCE_DISABLE_CACHES=value))
    assert told == ([] if value == "1" else [("setting", "disease")])


@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_compiler_that_a_variable_does_not_switch_off(name: str) -> None:
    """A target that compiles nothing is sick, whatever a variable says that does not matter; and
    so is one whose program switches the compiler off."""
    for value in ("0", "true"):
        assert kinds(found(start(Counts()), **{name: value})) == [("nothing compiled", "disease")]
    off = start(Counts(), switched_off=("torch._dynamo.config.disable = True",))
    (item,) = found(off, **{name: "0"})
    assert item.kind == "setting"
    assert "torch.compile does nothing" in item.what
    assert found(start(Counts()), **{name: "1"}) == []


def test_a_cache_that_is_off_explains_no_calls_beside_the_compiler() -> None:
    """Nothing was compiled, with the cache or without it."""
    off = start(Counts(), switched_off=("torch._inductor.config.fx_graph_cache = False",))
    assert [item.kind for item in found(off)] == ["setting", "nothing compiled"]


@pytest.mark.parametrize(
    ("setting", "explained"),
    [
        ("torch._inductor.config.autotune_local_cache", {"autotuned again"}),
        ("torch._inductor.config.fx_graph_cache", {"compiled again", "off"}),
        ("torch._functorch.config.enable_autograd_cache", set()),
        (
            "torch.compiler.config.force_disable_caches",
            {"compiled again", "autotuned again", "off"},
        ),
    ],
)
def test_a_setting_explains_its_own_consequences(setting: str, explained: set[str]) -> None:
    """All else that a start shows is told: bypasses, and what the second one did again."""
    incidents = (
        Incident("bypass AOTAutograd", "FX graph cache is not enabled"),
        Incident("bypass Inductor", "Failed to pickle cache key"),
    )
    unsaved = Counts(graphs=1, graph_misses=1, autograd_misses=1, generated=1, unsaved=1)
    cold = start(unsaved, incidents=incidents, switched_off=(f"{setting} = False",))
    told = {item.kind for item in found(cold, start(COLD, trace=Trace(tuning_s=1.0)))}
    kept = {"bypass AOTAutograd"} if "off" not in explained else set()
    everything = {"setting", "bypass Inductor", "compiled again", "autotuned again", "not saved"}
    assert told == (everything | kept) - explained


def test_an_autograd_cache_that_is_off_traces_again() -> None:
    """That setting is the one disease."""
    cold = start(switched_off=("torch._functorch.config.enable_autograd_cache = False",))
    again = start(Counts(graphs=1, graph_hits=1, autograd_misses=1))
    assert kinds(found(cold, again)) == [("setting", "disease")]


def test_compiled_again() -> None:
    """What differs between the keys of one graph in two starts is named, and where it belongs."""
    before = Lookup("Inductor", "miss", "0/0", components={"gm": "a", "x": "b", "gone": "c"})
    after = Lookup("Inductor", "miss", "0/0", components={"gm": "d", "x": "b", "new": "e"})
    compiles = (CompileRecord("0", 0, FORWARD),)
    (item,) = found(
        start(trace=Trace(compiles=compiles, lookups=(before,))),
        start(COLD, trace=Trace(compiles=compiles, lookups=(after,))),
    )
    assert (item.kind, item.where) == ("compiled again", "app.py:6 in forward")
    assert item.what.endswith("differs from process to process in gm, gone, new")


def lookup(state: str, digest: str) -> Lookup:
    return Lookup("Inductor", state, "0/0", components={"gm": digest})


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ([("miss", "f"), ("miss", "b")], [("hit", ""), ("miss", "b")], False),
        ([("miss", "f"), ("miss", "b")], [("hit", ""), ("miss", "c")], True),
        ([("miss", "f"), ("miss", "b")], [("miss", "f"), ("miss", "b")], False),
        ([("miss", "f"), ("miss", "b")], [("miss", "b")], False),
        ([("miss", "f")], [("miss", "g"), ("miss", "b")], False),
        ([("hit", "f")], [("miss", "g")], False),
    ],
)
def test_a_pass_is_compared_with_itself(
    before: list[tuple[str, str]], after: list[tuple[str, str]], differs: bool
) -> None:
    """A graph's forward and backward pass have one number; where the starts made another number of
    lookups, it is not known which are the same."""
    cold, local = (Trace(lookups=tuple(lookup(*each) for each in t)) for t in (before, after))
    (item,) = found(start(trace=cold), start(COLD, trace=local))
    assert item.kind == "compiled again"
    assert ("differs from process to process in gm" in item.what) is differs


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
    skipped = tuple(CompileRecord("0", n, FORWARD, cudagraph_skip="mutated inputs") for n in (0, 1))
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
    item = failure(
        "the cold start of app:w failed: an example call failed: Unsupported: Data-dependent branch"
        "\n  Explanation: Detected it.\n  Hint: Use `torch.cond`.\n\nfrom user code:\n"
        f'   File "{HERE}", line 9, in forward\n    if x.sum() > 0: print(x)\n\nSet TORCHDYNAMO...'
    )
    assert (item.kind, item.severity, item.where) == ("graph break", "disease", "app.py:9")
    assert item.what.endswith("fullgraph=True allows none: Data-dependent branch (Detected it.)")
    assert "torch.where" in item.cure


def test_a_limit_that_is_not_allowed() -> None:
    """Under fullgraph=True a call fails that no version fits; the trace knows what changed."""
    error = (
        "the cold start of app:w failed: an example call failed: FailOnRecompileLimitHit: Hard"
        " failure due to fullgraph=True"
    )
    size = "0/7: tensor 'x' size mismatch at index 0. expected 9, actual 10"
    refused = CompileRecord("0", 8, "", size, refused=True)
    item = failure(error, Trace(compiles=(*recompiled(7, size), refused)))
    assert (item.kind, item.severity, item.where) == (
        *("recompile limit", "disease"),
        "app.py:6 in forward",
    )
    assert "mark_dynamic(x, 0)" in item.cure
    assert failure(error).cure.startswith("raise torch._dynamo.config.recompile_limit")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("an example call failed: ValueError: Unsupported: dtype int4", ""),
        ("an example call failed: ValueError: recompile_limit is no argument", ""),
        ("it was killed by SIGKILL (was there too little memory?)", ""),
        ('Traceback:\n  File "a.py", line 1\n    x()\nKeyError: 7\n', "KeyError: 7"),
        (f'an example call failed: InductorError: it\n  File "{HERE}"', ""),
    ],
)
def test_a_call_that_failed(words: str, what: str) -> None:
    """By an error that is none of Dynamo's own: it is told as it is."""
    item = failure(f"the cold start of app:w failed: {words}")
    assert (item.kind, item.severity, item.where) == ("call failed", "disease", "")
    assert item.what == f"the cold start of app:w failed: {what or ' '.join(words.split())}"
