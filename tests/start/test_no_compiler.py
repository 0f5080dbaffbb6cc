"""Starts on a machine without a C++ compiler: warm from a bundle, eager where a build is due."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")

# No program at all can be found; the interpreter is started by its path.
NONE: Mapping[str, str | None] = {"PATH": "/nonexistent", "CXX": None}

# What makes other tests quick: here torch asks for the compiler as it does by itself.
REAL: Mapping[str, str | None] = dict.fromkeys(
    (
        "TORCHINDUCTOR_VEC_ISA_OK",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS",
        "TORCHINDUCTOR_COMPILE_THREADS",
        "CXX",
    )
)

WITHOUT = """
from cachesvc.runtime import compiler
assert compiler.do_without_compiler()

def said():
    return [compiler.eager_graphs(), compiler.notes()]

def same(model, *shape):
    with torch.no_grad():
        return torch.allclose(model(ones(*shape)), model._orig_mod(ones(*shape)))
"""


@pytest.mark.slow
def test_warm_as_torch_comes(starts: Starts, tmp_path: Path) -> None:
    """With the probe of the vector instructions and the precompiled headers that torch has by
    default: what a machine with a compiler published starts warm on one without, and is right."""
    publish = """
import torch._inductor.codecache
torch._inductor.codecache._precompile_header = lambda *args, **kwargs: None  # no key depends on it
model = torch.compile(Fused())
push(model, start(model, [ones()]))
"""
    start = """
model = torch.compile(Fused(), fullgraph=True)
report = start(model, [ones()])
result = [shown(report), said(), same(model)]
"""
    how: dict[str, Any] = {"store": tmp_path / "store", "own": True}
    starts.run(publish, env=REAL, **how)
    report, eager, right = starts.run(WITHOUT + start, env={**REAL, **NONE}, **how)
    assert report["verdict"] == "warm"
    assert report["counts"]["native_builds"] == report["counts"]["graph_misses"] == 0
    assert report["notes"] == []
    assert eager == [0, []]
    assert right


@pytest.mark.slow
def test_warm_from_a_narrower_machine(starts: Starts, tmp_path: Path) -> None:
    """Its libraries use fewer vector instructions than this CPU has, so they have another key than
    a build here would give them; they run here, and nothing else can be had."""
    script = """
model = torch.compile(Fused())
report = start(model, [ones()])
push(model, report)
result = shown(report)
"""
    narrow = {"ATEN_CPU_CAPABILITY": "default"}
    starts.run(script, store=tmp_path / "store", env=narrow)
    report = starts.run(WITHOUT + script, store=tmp_path / "store", env=NONE)
    assert report["verdict"] == "warm"
    assert report["counts"]["native_builds"] == 0


def test_a_graph_that_is_in_no_bundle(starts: Starts, tmp_path: Path) -> None:
    """It runs eager, at the example call, at a later call of another shape, and in training; each
    is counted once, however often it is called, and the note says what to do."""
    script = """
model = torch.compile(Fused(), fullgraph=True)
report = start(model, [ones()])
seen = [[same(model), *said()], [same(model, 3, 4), same(model, 5, 4), *said()]]
for chosen in (model, model._orig_mod):
    model.zero_grad()
    chosen(ones()).backward()
    seen.append(model._orig_mod.inner.weight.grad.tolist())
result = [report.to_json(), seen, compiler.notes(since=1)]
"""
    report, seen, later = starts.run(WITHOUT + script, store=tmp_path / "store", env=NONE)
    assert report["verdict"] != "warm"
    assert report["first_call_s"] is not None
    assert not any("an example call failed" in note for note in report["notes"])
    first, other, compiled, eager = seen
    assert first == [
        True,
        1,
        [
            "no C++ compiler (g++) on PATH: 1 graphs run eager; install one, or publish the"
            " model's kernels from a machine that has one"
        ],
    ]
    assert other[:3] == [True, True, 2]
    assert compiled == eager
    assert "2 graphs run eager" in later[0]  # the other shape, and the one with gradients


def test_partial(starts: Starts, tmp_path: Path) -> None:
    """One shape lies in the bundle and its library is used; the other one runs eager."""
    publish = """
model = torch.compile(Fused(), dynamic=False)
push(model, start(model, [ones()]))
"""
    script = """
model = torch.compile(Fused(), dynamic=False)
report = start(model, calls=[[ones(3, 4)], [ones()], [ones(5, 4)]])
result = [report.to_json(), said()[0], same(model), same(model, 3, 4)]
"""
    starts.run(publish, store=tmp_path / "store")
    report, eager, *right = starts.run(WITHOUT + script, store=tmp_path / "store", env=NONE)
    assert report["verdict"] == "partial"
    assert report["counts"]["graph_hits"] == 1
    assert report["counts"]["cpp_builds"] == 0
    assert eager == 2
    assert right == [True, True]


def test_a_library_that_is_missing(starts: Starts, fused: Published) -> None:
    """The caches hit and lead to a library that is not there, as a mega-cache alone would: eager,
    and right."""
    script = """
from pathlib import Path
model = torch.compile(Fused())
report = start(model)
libraries = list(Path(report.live).glob("inductor/*/*.so"))
for library in libraries:
    library.unlink()
result = [len(libraries), same(model), said()[0]]
"""
    libraries, right, eager = starts.run(
        WITHOUT + script, store=fused.store, label="fused", env=NONE
    )
    assert libraries > 0
    assert right
    assert eager == 1


@pytest.mark.slow
def test_a_backward_pass_that_is_in_no_bundle(starts: Starts, tmp_path: Path) -> None:
    """The forward pass of a training step is used as it was published; the backward pass, which is
    compiled at its first use, runs eager and gives the same gradients."""
    publish = """
model = torch.compile(Fused())
push(model, cachesvc.warm_start(model, [ones()], store=given["store"]))
"""
    script = """
model = torch.compile(Fused())
report = cachesvc.warm_start(model, [ones()], store=given["store"])
before = said()[0]
gradients = []
for chosen in (model, model, model._orig_mod):
    model.zero_grad()
    chosen(ones()).backward()
    gradients.append(model._orig_mod.inner.weight.grad.tolist())
result = [report.to_json(), before, said()[0], gradients]
"""
    starts.run(publish, store=tmp_path / "store")
    report, before, after, gradients = starts.run(
        WITHOUT + script, store=tmp_path / "store", env=NONE
    )
    assert report["counts"]["graph_hits"] == 1
    assert (before, after) == (0, 1)
    assert gradients[0] == gradients[1] == gradients[2]


def test_another_compiler_was_asked_for(starts: Starts, fused: Published) -> None:
    """Who sets CXX to a compiler that is not here gets other keys, so eager, and the note names it;
    that g++ lies on PATH does not matter, for torch does not look for it then."""
    script = """
torch._inductor.config.cpp.cxx = (None, "nosuch++")
from cachesvc.runtime import compiler
missing = compiler.do_without_compiler()
model = torch.compile(Fused())
report = start(model, [ones()])
result = [missing, report.counts.graph_hits, compiler.notes()]
"""
    missing, hits, notes = starts.run(script, store=fused.store, label="fused")
    assert missing
    assert hits == 0
    assert "no C++ compiler (nosuch++)" in notes[0]


def test_other_errors_are_raised(starts: Starts, tmp_path: Path) -> None:
    """Only the want of a compiler is excused: what else a backend or a model raises is the user's
    to see, as ever."""
    script = """
def refuse(graph, inputs):
    raise ValueError("not today")

texts = []
for model in (torch.compile(Plain(), backend=refuse), torch.compile(Failing())):
    try:
        model(ones())
    except Exception as error:
        texts.append(str(error))
result = [texts, said()[0]]
"""
    (backend, model), eager = starts.run(WITHOUT + script, store=tmp_path / "store", env=NONE)
    assert "not today" in backend
    assert "no batch of 2" in model
    assert eager == 0


def test_with_a_compiler_torch_is_left_alone(starts: Starts, fused: Published) -> None:
    """Nothing is wrapped for the want of one, and nothing is said."""
    missing, wrapped, notes = starts.run(
        """
import torch._inductor.compile_fx, torch._inductor.cpu_vec_isa, torch._dynamo.output_graph
from cachesvc.runtime import compiler
missing = compiler.do_without_compiler()
report = start(torch.compile(Fused()), [ones()])
found = (
    torch._inductor.compile_fx._compile_fx_inner,
    torch._inductor.cpu_vec_isa.VecISA.check_build,
    torch._dynamo.output_graph.OutputGraph.call_user_compiler,
)
wrapped = [hasattr(type(item), "__wrapped__") for item in found]
result = [missing, wrapped, compiler.notes()]
""",
        store=fused.store,
        label="fused",
    )
    assert missing is False
    assert wrapped == [False, False, False]
    assert notes == []
