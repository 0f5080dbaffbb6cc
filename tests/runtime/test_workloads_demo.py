"""The workloads demo:NAME: models, calls and training steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh_processes import QUICK, FreshProcesses

import cachesvc
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.runtime.calls import reaches_compiled
from cachesvc.runtime.workloads import gpt, load_workload, mlp, resnet

pytestmark = pytest.mark.xdist_group("runtime")

DEMOS = [("mlp", "rows", 8), ("gpt", "tokens", 16), ("resnet", "images", 2)]

TARGETS = """
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.runtime.workloads import load_workload

def __getattr__(name):
    kind, size, *train = name.split("_")
    return lambda: load_workload(f"demo:{kind}", WorkloadOptions(size, train=bool(train)))
"""


class Recorder:
    """In place of torch.compile: remembers what it was given, and gives it back."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, target: Any) -> Any:
        self.given.append(target)
        return target


def tiny(name: str, compile: Callable[[Any], Any], **options: Any) -> cachesvc.Workload:
    return load_workload(f"demo:{name}", WorkloadOptions("tiny", **options), compile)


@pytest.mark.parametrize(("name", "unit", "items"), DEMOS)
def test_a_model_and_a_call(name: str, unit: str, items: int) -> None:
    """The caller compiles the model; the call fits it and says how many items it works on."""
    recorder = Recorder()
    workload = tiny(name, recorder)
    assert (workload.name, workload.training) == (f"demo-{name}-tiny", False)
    assert (workload.unit, workload.items, len(workload.calls)) == (unit, items, 1)
    assert recorder.given == []
    assert not workload.model.training
    assert torch.isfinite(workload.model(*workload.calls[0])).all()


@pytest.mark.parametrize(("name", "unit", "items"), DEMOS)
def test_a_call_for_each_shape(name: str, unit: str, items: int) -> None:
    """In the order asked for; longer than the model was made for, too. The first one counts."""
    workload = tiny(name, Recorder(), shapes=(3, 40))
    lengths = [call[0].shape[1 if name == "gpt" else 0] for call in workload.calls]
    assert (lengths, workload.items, workload.unit) == ([3, 40], 3, unit)
    with torch.no_grad():
        assert all(torch.isfinite(workload.model(*call)).all() for call in workload.calls)


@pytest.mark.parametrize(("name", "unit", "items"), DEMOS)
def test_training_steps(name: str, unit: str, items: int) -> None:
    """Model and optimizer go through the caller's compile and through nothing else; the first step
    comes twice; each changes every weight."""
    recorder = Recorder()
    workload = tiny(name, recorder, train=True, shapes=(4, 6))
    assert (workload.name, workload.training) == (f"demo-{name}-tiny-train", True)
    assert (workload.unit, workload.items) == (unit, 4)
    assert recorder.given[0] is workload.model
    assert recorder.given[1].__name__ == "step"
    assert not reaches_compiled(workload.model)
    assert workload.model.training
    signatures = [call.__qualname__ for call in workload.calls]
    assert signatures == ["step of 4", "step of 4", "step of 6"]
    before = [parameter.detach().clone() for parameter in workload.model.parameters()]
    losses = torch.stack([call() for call in workload.calls])
    after = list(workload.model.parameters())
    assert all(not torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert losses.dtype == torch.bfloat16
    assert torch.isfinite(losses).all()


def test_what_a_step_has_learned_shows_in_the_next() -> None:
    """So that a compiled update that does nothing would not pass as equal to eager's."""
    first, second = (call() for call in tiny("mlp", Recorder(), train=True).calls)
    assert second < 0.97 * first


def test_rounding_does_not_decide_what_a_resnet_learns() -> None:
    """In training its blocks begin as their residuals alone; else each counts from the start."""
    for train, expected in ((True, 0.0), (False, 1.0)):
        model = tiny("resnet", Recorder(), train=train).model
        assert {float(w) for w in model.layer1[0].bn3.weight.detach()} == {expected}
        assert {float(w) for w in model.layer1[0].bn2.weight.detach()} == {1.0}


@pytest.mark.parametrize("train", [False, True])
def test_two_processes_make_the_same(train: bool) -> None:
    """Whatever was drawn before: weights and inputs come from a seed of their own."""

    def outputs() -> list[torch.Tensor]:
        torch.rand(7)
        workload = tiny("mlp", Recorder(), train=train)
        with torch.set_grad_enabled(train):
            return [call() if train else workload.model(*call) for call in workload.calls]

    assert all(torch.equal(*pair) for pair in zip(outputs(), outputs(), strict=True))


def test_resnet_50_is_torchvisions() -> None:
    """Its parameters and buffers by number, name and shape, so that their weights fit."""
    with torch.device("meta"):
        state = resnet.ResNet((3, 4, 6, 3), 64, 1000).state_dict()
    counted = [tensor for name, tensor in state.items() if not _is_statistic(name)]
    assert (len(state), sum(tensor.numel() for tensor in counted)) == (320, 25_557_032)
    assert list(state)[:2] == ["conv1.weight", "bn1.weight"]
    assert list(state)[-2:] == ["fc.weight", "fc.bias"]
    shapes = {
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer3.5.conv2.weight": (256, 256, 3, 3),
        "layer4.0.downsample.1.running_var": (2048,),
        "layer4.2.bn3.num_batches_tracked": (),
    }
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    assert "layer1.1.downsample.0.weight" not in state


def _is_statistic(name: str) -> bool:
    return name.endswith(("running_mean", "running_var", "num_batches_tracked"))


@pytest.mark.parametrize(
    ("module", "millions", "shape"),
    [(mlp, 536, (256, 8192)), (gpt, 1340, (1, 512)), (resnet, 25, (64, 3, 224, 224))],
)
def test_large_models(
    module: Any, millions: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As large as said; made without memory for them."""
    monkeypatch.setattr(module, "device", lambda: torch.device("meta"))
    workload = module.workload(size="large")
    assert sum(weight.numel() for weight in workload.model.parameters()) // 10**6 == millions
    assert workload.calls[0][0].shape == shape


def test_the_small_gpt_stays_what_it_is() -> None:
    """The default, which published figures are of."""
    workload = load_workload("demo:gpt")
    assert workload.name == "demo-gpt"
    assert workload.calls[0][0].shape == (1, 64)
    assert sum(parameter.numel() for parameter in workload.model.parameters()) == 11_591_168


def test_compile_is_what_compiles(fresh: FreshProcesses) -> None:
    """A step that is to run eagerly compiles nothing; else forward, and twice the update."""
    eager, compiled = fresh.run("""
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.runtime.workloads import load_workload
from torch._dynamo.utils import counters

def losses(compile):
    workload = load_workload("demo:mlp", WorkloadOptions("tiny", train=True), compile)
    return [float(step()) for step in workload.calls], counters["stats"]["unique_graphs"]

result = [losses(lambda target: target), losses(lambda t: torch.compile(t, backend="eager"))]
""")
    assert (eager[1], compiled[1]) == (0, 3)
    assert compiled[0] == pytest.approx(eager[0], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_tiny_train", "gpt_tiny", "resnet_tiny"])
def test_a_build(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eagerly, compiled from nothing and started from the bundle it gives the same; warm."""
    (tmp_path / "demo_targets.py").write_text(TARGETS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for variable, value in QUICK.items():
        monkeypatch.setenv(variable, value)
    built = cachesvc.build(f"demo_targets:{name}", dry_run=True)
    assert (built.verdict, built.reasons) == ("warm", ())
    assert len(built.calls) == (2 if "train" in name else 1)
