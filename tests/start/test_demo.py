"""demo: cold start, publication, warm start, each in a fresh process, each label checked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from samples import Samples

from cachesvc.core.errors import TccacheError, UntrustedError, UsageError
from cachesvc.core.measure import Measurement
from cachesvc.core.report import Verdict
from cachesvc.start import sampler
from cachesvc.start.inspect import show
from cachesvc.start.measure import demo

pytestmark = pytest.mark.xdist_group("demo")

WORKLOADS = """
import torch
from cachesvc import Workload

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)

class Broken(Small):
    def forward(self, x):
        raise ValueError("no such weather")

def small():
    torch.manual_seed(0)
    return Workload("small", Small().eval(), ((torch.ones(2, 4),),))

def broken():
    return Workload("broken", Broken(), ((torch.ones(2, 4),),))

def failing():
    raise KeyError("weights")

def dying():
    import os
    os._exit(3)

"""


@pytest.fixture(autouse=True)
def _workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module that the samples' processes can import, and flags for quick compiles."""
    (tmp_path / "weather.py").write_text(WORKLOADS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.mark.slow
def test_a_users_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four arms with the verdicts of their labels, stages from the start of the process to the
    second call, equal outputs, and a bundle in the store that was given. What the caller's process
    has set for its own caches reaches no sample."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("TCCACHE_DISABLE", "1")
    monkeypatch.setenv("TCCACHE_STORE", "s3://nowhere")
    seen: list[str] = []
    found = demo("weather:small", store=tmp_path / "store", progress=seen.append)
    verdicts = {arm.name: arm.verdict for arm in found.arms}
    assert list(verdicts) == ["eager", "cold", "warm", "aot"]
    assert list(verdicts.values()) == [Verdict.EAGER, Verdict.COLD, Verdict.WARM, Verdict.WARM]
    cold, warm, aot = (found.arm(name).samples[0] for name in ("cold", "warm", "aot"))
    assert aot.difference == pytest.approx(0, abs=1e-6)
    assert "import compiler" not in dict(aot.stages)
    assert (cold.compiled, warm.compiled) == (1, 0)
    assert cold.native_builds == warm.native_builds == 0
    assert warm.difference == pytest.approx(0, abs=1e-6)
    stages = [name for name, _ in warm.stages]
    order = ["interpreter", "import torch", "import compiler", "build model", "identify", "look up"]
    assert stages == [*order, "pull", "seed", "first call", "second call", "steady"]
    assert cold.startup_s > cold.first_call_s > 0
    assert found.pack_bytes > 0
    assert found.ratio("cold", "warm") > 0
    assert found.startup_ratio("cold", "warm") > 0
    (bundle,) = show("small", store=tmp_path / "store")
    assert bundle.coverage == ("call (float32[2, 4])",)
    assert seen == [f"run 1 of 1: {arm}" for arm in verdicts]
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("weather:broken", "no such weather"),
        ("weather:failing", "weights"),
        ("weather:dying", "exit 3"),
        ("nowhere:small", "nowhere"),
    ],
)
def test_a_broken_workload_is_named(tmp_path: Path, target: str, reason: str) -> None:
    """The error says which target failed and with what, and no trace of the machinery."""
    with pytest.raises(TccacheError, match=reason) as caught:
        demo(target, store=tmp_path / "store")
    assert target in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_what_is_wrong_at_once_is_said_at_once() -> None:
    """No process is started for a target that cannot be one, nor for a store without trust."""
    for target in ("nonsense", "demo:nothing", ":f", "m:"):
        with pytest.raises(UsageError):
            demo(target)
    with pytest.raises(UntrustedError):
        demo("weather:small", store="s3://bucket/prefix")


@pytest.mark.parametrize("arm", ["eager", "cold", "warm"])
def test_an_arm_that_is_not_what_it_says_is_an_error(
    monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    """A warm arm that compiled, a cold one that did not: their seconds are never shown."""
    monkeypatch.setattr(sampler, "run_sample", Samples(**{arm: "inert"}))
    with pytest.raises(TccacheError, match=f"the {arm} arm turned out inert.*what it was"):
        demo("weather:small")


def test_without_functions_there_are_three_arms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A model that cannot be captured is measured all the same, and why is told once."""
    samples, told = Samples(), list[str]()
    samples.reasons = ("a graph break",)
    monkeypatch.setattr(sampler, "run_sample", samples)
    found = demo("weather:small", runs=2, store=tmp_path / "store", progress=told.append)
    assert [(arm.name, len(arm.samples)) for arm in found.arms] == [
        ("eager", 2),
        ("cold", 2),
        ("warm", 2),
    ]
    assert told.count("not ahead of time: nothing was captured: a graph break") == 1


@pytest.mark.slow
def test_the_demo_that_comes_with_it() -> None:
    """demo:gpt: C++ builds when cold, none when warm, and a warm start several times as fast."""
    found: Measurement = demo()
    assert found.arm("cold").samples[0].native_builds > 0
    assert found.arm("warm").samples[0].native_builds == 0
    assert found.arm("warm").samples[0].difference == pytest.approx(0, abs=1e-3)
    assert found.ratio("cold", "warm") > 1
