"""bench: arms and variants interleaved, labels checked, failures told, what was measured kept."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from samples import Samples, outcome, without_processes

from cachesvc.core.errors import TccacheError, UntrustedError, UsageError
from cachesvc.core.report import Verdict
from cachesvc.core.variant import Variant
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.start import process, sample, sampler
from cachesvc.start.baseline import gate, read_baseline
from cachesvc.start.bench import bench
from cachesvc.start.program import Ended

ROUND = ["eager", "cold", "warm", "local", "megacache", "aot"]
REGIONS = Variant(regions=True)


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> Samples:
    return without_processes(monkeypatch)


def test_arms_take_turns(samples: Samples) -> None:
    """Each run makes every arm once: nothing that changes meanwhile falls on one arm alone."""
    told: list[str] = []
    found = bench("weather:small", runs=2, progress=told.append)
    assert samples.arms == ROUND * 2
    (trial,) = found.trials
    assert [(arm.name, len(arm.samples)) for arm in trial.arms] == [(arm, 2) for arm in ROUND]
    assert (found.workload, found.items, found.unit) == ("weather", 8, "rows")
    assert dict(found.context) == {"threads": "2"}
    assert trial.notes == ("what was chosen",)
    assert not found.interrupted
    assert told[0] == "run 1 of 2: eager"
    assert all("; about " in step and step.endswith(" left") for step in told[1:])


def test_variants_share_the_eager_arm(samples: Samples) -> None:
    """Nothing is compiled there, so it is made once in a run; all else once for each variant."""
    found = bench("weather:small", runs=3, variants=[Variant(), REGIONS])
    assert samples.arms == (ROUND + ROUND[1:]) * 3
    assert [trial.variant for trial in found.trials] == [Variant(), REGIONS]
    for trial in found.trials:
        assert [(arm.name, len(arm.samples)) for arm in trial.arms] == [(a, 3) for a in ROUND]
    labels = [Variant(**spec.variant).label for arm, spec, *_ in samples.asked if arm == "cold"]
    assert labels == ["default", "default+regions"] * 3


def test_what_a_sample_is_asked_for(samples: Samples) -> None:
    """The first cold sample publishes; local starts from the directory of its own cold one, each
    other in one of its own; the mega-cache is that of its variant."""
    options = WorkloadOptions("tiny", (1, 2), train=True)
    bench("weather:small", runs=2, options=options, calls=9)
    specs = [spec for _, spec, *_ in samples.asked]
    assert [spec.publish for spec in specs] == [arm == "cold" for arm in ROUND] + [False] * len(
        ROUND
    )
    assert {spec.rounds for spec in specs} == {9}
    assert specs[0].options == {"size": "tiny", "shapes": (1, 2), "train": True}
    homes = [home for _, _, home, _ in samples.asked]
    assert len(set(homes)) == len(homes)
    cold = [home for arm, _, home, _ in samples.asked if arm == "cold"]
    assert [caches for *_, caches in samples.asked if caches] == cold
    assert len({spec.mega for spec in specs}) == 1


def test_functions_are_captured_once(samples: Samples) -> None:
    """Before the first aot sample of each variant, from a copy of what the cold one has compiled;
    they are published where no other arm finds them, and the directory of the capture is gone."""
    bench("weather:small", runs=3, variants=[Variant(), REGIONS], arms=["warm", "aot"])
    assert len(samples.captures) == 2
    for spec, home, caches in samples.captures:
        assert caches == home
        assert Path(spec.functions).parent == home
    stores = {arm: {s.store for a, s, *_ in samples.asked if a == arm} for arm in ("warm", "aot")}
    assert stores["aot"].isdisjoint(stores["warm"])
    assert samples.crowd == 2


@pytest.mark.parametrize(
    ("reasons", "past", "said"),
    [
        (("a graph break", "a print"), 0, "nothing was captured: a graph break; a print"),
        ((), 3, "the aot arm made 3 calls past its functions: warm: what it was"),
    ],
)
def test_an_aot_arm_without_functions_is_a_failure(
    samples: Samples, reasons: tuple[str, ...], past: int, said: str
) -> None:
    """Nothing could be captured, or calls went past what was: no figure, and the reason."""
    samples.reasons, samples.past = reasons, past
    found = bench("weather:small", runs=2)
    assert [(failure.arm, failure.reason) for failure in found.failures] == [("aot", said)]
    assert [arm.name for arm in found.trials[0].arms] == ROUND[:-1]


def test_only_some_arms(samples: Samples) -> None:
    """Eager and cold are what the others are compared with, so they are always made."""
    bench("weather:small", runs=1, arms=["warm"])
    assert samples.arms == ["eager", "cold", "warm"]


def test_no_directory_is_left(samples: Samples) -> None:
    """Neither in the middle, where disks fill, nor at the end."""
    samples.raising["megacache", 0] = TccacheError("no mega-cache")
    bench("weather:small", runs=3)
    assert samples.crowd == 2  # a sample's own, and those of the cold one
    assert not samples.asked[0][2].parents[1].exists()


@pytest.mark.parametrize("arm", ROUND[1:])
def test_a_wrong_label_is_a_failure(samples: Samples, arm: str) -> None:
    """A warm arm that compiled, a cold one that found something: its seconds are never shown, the
    arm is not made again, and what was measured otherwise stands."""
    samples.verdicts[arm] = "warm" if arm == "cold" else "cold"
    found = bench("weather:small", runs=2)
    (failure,) = found.failures
    assert (failure.variant, failure.arm) == ("default", arm)
    assert "would carry a wrong label: " in failure.reason
    (trial,) = found.trials
    assert trial.arm(arm) is None
    assert samples.arms.count(arm) == 1
    left = ["eager"] if arm == "cold" else [name for name in ROUND if name != arm]
    assert [name.name for name in trial.arms] == left


def test_an_arm_that_fails_later_has_no_figure(samples: Samples) -> None:
    """Neither that of its first samples: which of them is right nobody knows."""
    samples.raising["warm", 2] = TccacheError("the warm arm turned out partial")
    found = bench("weather:small", runs=3)
    (trial,) = found.trials
    assert trial.arm("warm") is None
    assert [len(arm.samples) for arm in trial.arms] == [3] * (len(ROUND) - 1)


def test_a_full_disk_leaves_what_was_measured(samples: Samples) -> None:
    """An error of the system is an arm's failure like any other."""
    samples.raising["warm", 1] = OSError(28, "No space left on device")
    (failure,) = bench("weather:small", runs=2).failures
    assert failure.arm == "warm"
    assert "No space left" in failure.reason


def test_an_eager_sample_that_fails_later(samples: Samples) -> None:
    """The others are compared with the last eager outputs that there are."""
    samples.raising["eager", 1] = TccacheError("killed")
    found = bench("weather:small", runs=2)
    assert [failure.arm for failure in found.failures] == ["eager"]
    references = [spec.reference for arm, spec, *_ in samples.asked if arm == "cold"]
    assert len(set(references)) == 1


def test_folders_take_any_label(samples: Samples) -> None:
    """A label may hold quotes and be long; compilers split command lines, file systems count."""
    odd = Variant(options=(("text", 'a"b c' * 100),))
    bench("weather:small", runs=1, variants=[odd])
    assert all(re.fullmatch(r"[\w.-]+", home.name) for _, _, home, _ in samples.asked)


def test_a_local_arm_that_compiled_a_graph(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch preprocesses a header at each start, so `partial` is allowed there, a graph is not."""
    samples.verdicts["local"] = "partial"
    arms = ["local", "warm"]
    assert not bench("weather:small", runs=1, arms=arms).failures
    monkeypatch.setattr(
        sampler,
        "run_sample",
        lambda spec, home, caches: outcome(spec, compiled=spec.arm == "local"),
    )
    (failure,) = bench("weather:small", runs=1, arms=arms).failures
    assert failure.arm == "local"


def test_one_variant_that_fails_leaves_the_others(samples: Samples) -> None:
    """Its cold arm fails: what starts from that is not made, of this variant alone."""
    samples.raising["cold", 1] = UsageError("there are no regions to compile")
    found = bench("weather:small", runs=1, variants=[Variant(), REGIONS])
    assert [str(failure) for failure in found.failures] == [
        "default+regions, cold: there are no regions to compile"
    ]
    assert [[arm.name for arm in trial.arms] for trial in found.trials] == [ROUND, ["eager"]]


def test_what_does_not_even_run_eagerly(samples: Samples) -> None:
    """Nothing was measured, so there is nothing to report but the error itself."""
    samples.raising["eager", 0] = TccacheError("no such weather")
    with pytest.raises(TccacheError, match="no such weather"):
        bench("weather:small")


def test_an_interrupt_leaves_what_was_measured(samples: Samples) -> None:
    """All samples before it count, and the bench says that it was ended early."""
    samples.raising["warm", 1] = KeyboardInterrupt()
    found = bench("weather:small", runs=3)
    assert found.interrupted
    (trial,) = found.trials
    assert trial.bundle is not None
    assert {arm.name: len(arm.samples) for arm in trial.arms} == {
        "eager": 2,
        "cold": 2,
        "warm": 1,
        "local": 1,
        "megacache": 1,
        "aot": 1,
    }


def test_an_interrupt_before_anything_was_measured(samples: Samples) -> None:
    """Is an interrupt."""
    samples.raising["eager", 0] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench("weather:small")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "demo:nothing"}, "demo:nothing"),
        ({"runs": 0}, "one run"),
        ({"calls": 0}, "one call"),
        ({"variants": []}, "one variant"),
        ({"variants": [Variant(), Variant()]}, "only once"),
        ({"arms": ["hot"]}, "no arm hot"),
    ],
)
def test_what_is_wrong_is_said_at_once(samples: Samples, given: Any, said: str) -> None:
    """Before a process is started."""
    with pytest.raises(UsageError, match=said):
        bench(**{"target": "weather:small", **given})
    assert not samples.asked


def test_a_store_without_trust(samples: Samples) -> None:
    """The same for the store."""
    with pytest.raises(UntrustedError):
        bench("weather:small", store="s3://bucket/prefix")
    assert not samples.asked


def test_the_gate(samples: Samples, tmp_path: Path) -> None:
    """The JSON of one bench is the baseline of the next: the same passes, a baseline whose cold
    arm was slower, so that warm starts won more, does not."""
    found = bench("weather:small", runs=1)
    told = {"schema": "tccache.bench/1", **found.to_json()}
    (tmp_path / "same.json").write_text(json.dumps(told))
    assert not gate(found, read_baseline(tmp_path / "same.json", "weather:small")).regressions
    slower = json.loads(json.dumps(told))
    slower["variants"]["default"]["ratios"]["cold_over_warm"]["first_call"] = 20.0
    (tmp_path / "slower.json").write_text(json.dumps(slower))
    before = read_baseline(tmp_path / "slower.json", "weather:small")
    assert [str(c) for c in gate(found, before).regressions] == [
        "default: cold over warm, first call: 20.00 -> 10.00"
    ]
    with pytest.raises(UsageError, match="margin"):
        gate(found, before, 1.5)


def test_a_baseline_that_cannot_be_read(tmp_path: Path) -> None:
    """Named with the file and the reason."""
    (tmp_path / "text").write_text("seconds: few")
    for name, said in (("nowhere", "No such file"), ("text", "is not JSON")):
        with pytest.raises(UsageError, match=said):
            read_baseline(tmp_path / name, "weather:small")


WEATHER = """
import torch
from cachesvc import Workload

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())

def small(size="tiny", shapes=(2,), compile=torch.compile):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block(4) for _ in range(4))).eval()
    return Workload("small", model, [(torch.ones(n, 4),) for n in shapes], items=2, unit="rows")
"""


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All five arms of two variants, with two shapes: verdicts, stages, calls, memory, bundles."""
    (tmp_path / "weather.py").write_text(WEATHER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    options = WorkloadOptions(size="tiny", shapes=(2, 3))
    found = bench("weather:small", runs=1, variants=[Variant(), REGIONS], options=options, calls=3)
    assert found.failures == ()
    for trial in found.trials:
        verdicts = {arm.name: arm.verdict for arm in trial.arms}
        assert (verdicts["eager"], verdicts["warm"]) == (Verdict.EAGER, Verdict.WARM)
        assert list(verdicts) == ROUND
        assert trial.bundle is not None
        assert trial.bundle.bytes > 0
        assert set(trial.bundle.sections) >= {"inductor"}
        for arm in trial.arms:
            (sample,) = arm.samples
            assert len(sample.calls) == 2 * (1 + 3)
            assert arm.steady_s is not None
            assert sample.peak_bytes is not None
            assert sample.difference == pytest.approx(0, abs=1e-5)
        cold, warm = trial.arm("cold"), trial.arm("warm")
        assert cold is not None
        assert warm is not None
        assert cold.samples[0].calls[1].reason  # the second shape
        assert cold.samples[0].calls[1].compiled
        assert not any(call.compiled for call in warm.samples[0].calls)
        assert all(call.traced == 0 for call in warm.samples[0].calls[2:])
    assert os.environ.get("TORCHINDUCTOR_CACHE_DIR") is None


def test_any_error_of_a_sample_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch or the disk raises in its process, with the place, and no traceback."""

    def run(_: Any) -> None:
        raise OSError(28, "No space left\non device")

    monkeypatch.setattr(sample, "run", run)
    spec = sample.SampleSpec("cold", "weather:small", 0.0, "reference")
    (tmp_path / "spec").write_text(sample.spec_text(spec))
    sample.main(str(tmp_path / "spec"), str(tmp_path / "result"))
    told = json.loads((tmp_path / "result").read_text())["error"]
    assert told.startswith("OSError: [Errno 28] No space left on device")
    assert "\n" not in told


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the compiler that failed there need not say so."""

    def execute(_: str, __: Path, result: Path, *___: Any) -> tuple[Ended, str]:
        result.write_text(json.dumps({"error": "g++ ended with 1"}))
        return Ended.of(0), ""

    monkeypatch.setattr(process, "execute", execute)
    home = {"environ": {}, "cwd": None, "failing": "the cold start failed"}
    with pytest.raises(TccacheError, match=r"failed: g\+\+ ended with 1$"):
        process.run_program("m", "{}", tmp_path, **home)
    monkeypatch.setattr(process, "_ROOM", 1 << 60)
    with pytest.raises(TccacheError, match=r"g\+\+ ended with 1; .* MB left .*; TMPDIR says"):
        process.run_program("m", "{}", tmp_path, **home)
