"""One real start for each verdict, and what else a start can meet in its process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")


def counted(report: dict[str, Any]) -> dict[str, int]:
    return {name: n for name, n in report["counts"].items() if n}


def test_cold(plain: Published) -> None:
    """Nothing in the store: all is compiled, and the report says so."""
    report = plain.report
    assert report["verdict"] == "cold"
    assert report["bundle"] is report["tier"] is report["cold_s"] is None
    assert report["store"] == str(plain.store)
    assert report["live"].startswith(str(plain.home))
    assert counted(report) == {
        "graphs": 1,
        "graph_misses": 1,
        "autograd_misses": 1,
        "generated": 1,
    }
    assert report["first_call_s"] == report["stages"]["first call"] > 0
    assert report["text"].startswith("cold: nothing pulled, 0/1 graphs from cache, 1 compiled")
    assert f"the store has nothing for this model here: {plain.store}" in report["notes"]


def test_the_report_as_json(plain: Published) -> None:
    """Its fields are an interface: they are only ever added."""
    report = {name: value for name, value in plain.report.items() if name != "text"}
    assert set(report) == {
        *("verdict", "name", "bundle", "store", "tier", "live", "late", "counts", "transfer"),
        *("stages", "first_call_s", "cold_s", "coverage", "calls", "incidents", "fallback"),
        *("set_aside", "prefetched", "published", "notes", "tier_reason"),
    }
    assert set(report["counts"]) == {
        *("graphs", "graph_hits", "graph_misses", "graph_bypasses", "generated", "graph_breaks"),
        *("autograd_hits", "autograd_misses", "autograd_bypasses", "autotunings"),
        *("cpp_builds", "triton_builds", "native_builds", "cpp_hits", "unsaved", "eager", "unread"),
        *("aot_hits", "aot_misses"),
    }
    assert set(report["transfer"]) == {
        *("packs", "bytes", "seeded", "in_place", "kept", "repaired", "left_out", "set_aside"),
        *("pull_s", "seed_s"),
    }


def test_warm(starts: Starts, plain: Published) -> None:
    """From an empty live directory: nothing is compiled, nothing is built, a call is covered."""
    report, segment = starts.run(
        """
report = start(torch.compile(Plain()), [ones()])
result = [shown(report), push(torch.compile(Plain()), report)]
""",
        store=plain.store,
        label="plain",
    )
    assert report["verdict"] == "warm"
    assert counted(report) == {"graphs": 1, "graph_hits": 1, "autograd_hits": 1}
    assert report["tier"] == "directories"
    assert report["bundle"].startswith("plain/")
    assert report["transfer"]["seeded"] > 0
    assert report["transfer"]["packs"] == 1
    assert report["cold_s"] == plain.report["first_call_s"]
    assert report["coverage"] == ["(float32[2, 4])"]
    assert report["notes"] == []
    assert list(report["stages"])[:4] == ["identify", "look up", "pull", "seed"]
    assert segment is None  # a warm start has nothing to add


def test_partial(starts: Starts, plain: Published) -> None:
    """One shape that was published and one that was not."""
    report = starts.run(
        """
model = torch.compile(Plain(), dynamic=False)
report = start(model, calls=[[ones(2, 4)], [ones(3, 4)]])
result = shown(report)
""",
        store=_dynamic_false(starts, plain),
        label="static",
    )
    assert report["verdict"] == "partial"
    assert report["counts"]["graph_hits"] == report["counts"]["graph_misses"] == 1
    assert "1 graphs were compiled here" in report["text"]


def _dynamic_false(starts: Starts, plain: Published) -> Path:
    """Publishes one shape of the static model beside Plain, out of Plain's own process."""
    starts.run(
        """
model = torch.compile(Plain(), dynamic=False)
report = start(model, [ones(2, 4)])
push(model, report)
""",
        store=plain.store,
        label="static",
    )
    return plain.store


def test_inert_because_of_another_graph(starts: Starts, plain: Published) -> None:
    """Directories that were pushed under the name alone are seeded, and none of them is used."""
    report = starts.run(
        """
cachesvc.push("mixed", store=given["store"], inductor_dir=given["inductor"])
result = shown(start(torch.compile(Other()), [ones()], label="mixed"))
""",
        store=plain.store,
        given={"inductor": f"{plain.report['live']}/inductor"},
    )
    assert report["verdict"] == "inert"
    assert report["bundle"].startswith("mixed/any/")
    assert report["transfer"]["seeded"] > 0
    assert report["counts"]["graph_hits"] == 0


def test_inert_because_of_another_setting(starts: Starts, plain: Published) -> None:
    """The same model with a setting that moves the compiler's keys: the note names it."""
    report = starts.run(
        """
torch._inductor.config.epilogue_fusion = False
result = shown(start(torch.compile(Plain()), [ones()]))
""",
        store=plain.store,
        label="plain",
    )
    assert report["verdict"] == "inert"
    assert "context differs, inductor epilogue_fusion: absent -> False" in report["notes"]


def test_eager(starts: Starts, tmp_path: Path) -> None:
    """What never asks Inductor for a graph: a backend of another kind, or nothing compiled."""
    backend, function = starts.run(
        """
result = [
    shown(start(torch.compile(Plain(), backend="eager"), [ones()])),
    shown(start(square, calls=[lambda: square(ones(2, 2))])),
]
""",
        store=tmp_path / "store",
    )
    assert backend["verdict"] == "eager"
    assert backend["counts"]["graphs"] == 1
    # The process had compiled a graph by then, so a call without any proves nothing.
    assert function["verdict"] == "unproven"


def test_eager_function_in_a_process_that_compiled_nothing(starts: Starts, tmp_path: Path) -> None:
    """A call that the program makes itself is made as it is: nothing is compiled for it."""
    report = starts.run(
        "result = shown(start(square, calls=[lambda: square(ones(2, 2))]))",
        store=tmp_path / "store",
    )
    assert report["verdict"] == "eager"
    assert report["name"] == "square"


def test_unproven_settles_at_the_first_call(starts: Starts, plain: Published) -> None:
    """Without calls the same report becomes warm, later partial, as the program calls the model."""
    verdicts, texts, imported = starts.run(
        """
model = torch.compile(Plain())
report = start(model)
verdicts, texts = [report.verdict], [str(report)]
with torch.no_grad():
    for shape in ((2, 4), (2, 4), (3, 4)):
        model(ones(*shape))
        verdicts.append(report.verdict)
        texts.append(str(report))
result = [verdicts, texts, report.to_json()["called"] if "called" in report.to_json() else None]
""",
        store=plain.store,
        label="plain",
    )
    assert verdicts == ["unproven", "warm", "warm", "partial"]
    assert "no call yet" in texts[0]
    assert "1/1 graphs from cache" in texts[1]
    assert imported is None


def test_unproven_where_native_builds_cannot_be_counted(starts: Starts, plain: Published) -> None:
    """Hits alone are no warm start: a torch without the counter gives no verdict of warm."""
    report = starts.run(
        """
import torch._inductor.cpp_builder as module
del module.CppBuilder.build
result = shown(start(torch.compile(Plain()), [ones()]))
""",
        store=plain.store,
        label="plain",
    )
    assert report["verdict"] == "unproven"
    assert report["counts"]["graph_hits"] == 1
    assert "torch._inductor.cpp_builder.CppBuilder.build" in report["text"]


def test_partial_where_only_the_tracing_is_repeated(starts: Starts, tmp_path: Path) -> None:
    """A call with gradients and no backward pass: the graph hits, AOTAutograd has nothing, and
    the report says what to do; nothing is said to be compiled that was not."""
    script = """
model = torch.compile(Plain())
report = cachesvc.warm_start(model, [ones()], store=given["store"])
push(model, report)
result = shown(report)
"""
    cold, again = (starts.run(script, store=tmp_path / "store") for _ in range(2))
    assert (cold["verdict"], again["verdict"]) == ("cold", "partial")
    assert again["counts"]["graph_hits"] == again["counts"]["autograd_misses"] == 1
    assert again["counts"]["generated"] == 0
    assert "1/1 graphs from cache, 0 compiled" in again["text"]
    assert any("torch.no_grad()" in note for note in again["notes"])


def test_a_failing_call_is_reported(starts: Starts, plain: Published) -> None:
    """What the model raises becomes a note, also after calls that went well."""
    failing, second = starts.run(
        """
result = [
    shown(start(torch.compile(Failing()), [ones()])),
    shown(start(torch.compile(Plain()), calls=[[ones()], ["not a tensor"]], label="plain")),
]
""",
        store=plain.store,
    )
    assert failing["first_call_s"] is None
    assert failing["verdict"] in ("unproven", "cold")
    assert any(
        note.startswith("an example call failed: ValueError: no batch of 2")
        for note in failing["notes"]
    )
    assert second["coverage"] == ["(float32[2, 4])"]
    assert any(note.startswith("an example call failed: ") for note in second["notes"])


@pytest.mark.parametrize("inputs", ["ones()", "7", "calls=7", "calls=[7]", "calls=['text']"])
def test_what_is_no_call_is_reported(starts: Starts, tmp_path: Path, inputs: str) -> None:
    """A wrong argument is the caller's mistake, and still no reason not to serve."""
    report = starts.run(f"result = shown(start(Plain(), {inputs}))", store=tmp_path / "store")
    assert report["verdict"] == "unproven"
    assert any(note.startswith("an example call failed: ") for note in report["notes"])


def test_disabled(starts: Starts, tmp_path: Path) -> None:
    """TCCACHE_DISABLE leaves the compiler and its directories alone; the calls are made."""
    report, variables, build = starts.run(
        """
import torch._inductor.cpp_builder as module
report = start(torch.compile(Plain()), [ones()], store="s3://nowhere")
build = type(module.CppBuilder.build).__name__
result = [shown(report), os.environ["TORCHINDUCTOR_CACHE_DIR"], build]
""",
        env={"TCCACHE_DISABLE": "1"},
        home=tmp_path / "home",
    )
    assert report["verdict"] == "cold"
    assert report["store"] is report["live"] is report["bundle"] is None
    assert any("TCCACHE_DISABLE" in note for note in report["notes"])
    assert not (tmp_path / "home").exists()
    assert "torchinductor_" in variables
    assert build == "function"


def test_late(starts: Starts, plain: Published) -> None:
    """What was compiled before is past; its directories are seeded and serve what comes next."""
    report, before, after = starts.run(
        """
with torch.no_grad():
    torch.compile(Other())(ones())
before = os.environ["TORCHINDUCTOR_CACHE_DIR"]
report = start(torch.compile(Plain()), [ones()])
result = [shown(report), before, os.environ["TORCHINDUCTOR_CACHE_DIR"]]
""",
        store=plain.store,
        label="plain",
    )
    assert report["late"]
    assert report["verdict"] == "warm"
    assert report["live"] == before == after
    assert any(note.startswith("late: ") for note in report["notes"])


def test_late_for_what_is_compiled_already(starts: Starts, plain: Published) -> None:
    """A call that runs on code from before the start proves nothing, and is not called eager."""
    report = starts.run(
        """
model = torch.compile(Plain())
with torch.no_grad():
    model(ones())
result = shown(start(model, [ones()]))
""",
        store=plain.store,
        label="plain",
    )
    assert report["verdict"] == "unproven"


def test_two_models_in_one_process(starts: Starts, plain: Published, tmp_path: Path) -> None:
    """Each start has its own counts and one live directory serves both; a push of one model
    publishes what the other made too, under its own address, and says who made what was seeded."""
    first, second, again, origins = starts.run(
        """
from cachesvc.start.settings import open_repository
one, two = torch.compile(Plain()), torch.compile(Other())
reports = [start(one, [ones()], label="plain"), start(two, [ones()], label="other")]
cachesvc.push(two, store=given["mine"], label="other", report=reports[1])
repository = open_repository(given["mine"], None)
(bundle,) = repository.bundles()
(segment,) = repository.read(bundle).segments
origins = [[unit.key, unit.origin.model] for unit in segment.units]
result = [shown(reports[0]), shown(reports[1]), shown(reports[0]), origins]
""",
        store=plain.store,
        given={"mine": str(tmp_path / "mine")},
    )
    assert (first["verdict"], second["verdict"]) == ("warm", "cold")
    assert first == again
    assert not second["late"]  # what came before it came through us
    assert first["live"] == second["live"]
    makers = {model for key, model in origins if key.startswith("inductor/")}
    assert len(makers) == 2  # Plain's process for what was seeded, this one for what is new


def test_a_function_and_a_training_step(starts: Starts, tmp_path: Path) -> None:
    """A compiled function, and a callable without arguments that does forward and backward, start
    warm as models do."""
    script = """
torch.manual_seed(0)
model = torch.compile(Plain(5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    with torch.enable_grad():
        model(ones()).sum().backward()
    optimizer.step()

reports = [
    start(torch.compile(square), [ones(2, 2)], label="square"),
    start(model, calls=[step, step], label="step"),
]
for target, report, label in zip((torch.compile(square), model), reports, ("square", "step")):
    cachesvc.push(target, store=given["store"], label=label, report=report)
result = [shown(report) for report in reports]
"""
    cold, warm = (starts.run(script, store=tmp_path / "store") for _ in range(2))
    assert [report["verdict"] for report in cold] == ["cold", "cold"]
    assert [report["verdict"] for report in warm] == ["warm", "warm"]
    assert warm[1]["counts"]["graph_hits"] == 2
    assert warm[1]["coverage"] == ["call step", "call step"]


def test_before_and_after_torch_compile(starts: Starts, plain: Published) -> None:
    """A start of the bare model finds the bundle of the compiled one, and what it has proven
    serves the compile that comes later."""
    report, later = starts.run(
        """
from cachesvc.runtime.counters import Meter
model = Plain()
report = start(model, [ones()])
meter = Meter(None)
with torch.no_grad():
    torch.compile(model)(ones())
result = [shown(report), meter.read().compiled]
""",
        store=plain.store,
        label="plain",
    )
    assert report["verdict"] == "warm"
    assert later == 0


def test_a_live_directory_that_is_filled_already(starts: Starts, plain: Published) -> None:
    """A second start on a machine pulls nothing and is warm; one with a graph that the bundle
    does not have is inert, though all units lie in place; and one without a bundle is warm on what
    this machine has compiled itself."""
    home = plain.home.parent / "second"
    script = "result = shown(start(torch.compile(Plain()), [ones()]))"
    first, second = (
        starts.run(script, store=plain.store, label="plain", home=home) for _ in range(2)
    )
    assert first["transfer"]["seeded"] == second["transfer"]["in_place"] > 0
    assert second["transfer"]["packs"] == second["transfer"]["seeded"] == 0
    assert second["verdict"] == "warm"
    assert "units in place" in second["text"]
    own = starts.run(script, store=plain.store, label="nobody", home=home)
    assert own["verdict"] == "warm"
    assert "nothing pulled" in own["text"]
    unused = starts.run(
        "torch._inductor.config.epilogue_fusion = False\n" + script,
        store=plain.store,
        label="plain",
        home=home,
    )
    assert unused["verdict"] == "inert"
    assert unused["transfer"]["in_place"] > 0
