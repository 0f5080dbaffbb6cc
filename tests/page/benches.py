"""Benches as values: what the page is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cachesvc.core.bench import Bench, Composition, Failure, Trial
from cachesvc.core.components import Components
from cachesvc.core.measure import Arm, CallTime, Sample
from cachesvc.core.report import Verdict
from cachesvc.core.variant import Variant
from cachesvc.core.workload_options import WorkloadOptions

_ENVIRONMENT = Components.of(
    {
        "capability": "none",
        "device": "cpu",
        "platform": "linux-x86_64-glibc",
        "python": "cpython-311-x86_64-linux-gnu",
        "torch": "2.13.0+cpu",
    }
)
_STAGES = {
    "interpreter": 0.05,
    "import torch": 2.1,
    "import compiler": 2.9,
    "build model": 0.4,
    "identify": 0.12,
    "look up": 0.02,
    "pull": 0.11,
    "seed": 0.08,
}
_STAGES_OF = {
    "eager": ("interpreter", "import torch", "build model"),
    "cold": ("interpreter", "import torch", "import compiler", "build model"),
}


@dataclass(frozen=True)
class Figures:
    """What one arm took."""

    verdict: Verdict
    first_s: float
    second_s: float
    steady_s: float
    compiled: int = 0
    traced: int = 0


FIGURES = {
    "eager": Figures(Verdict.EAGER, 0.21, 0.012, 0.0102),
    "cold": Figures(Verdict.COLD, 38.2, 0.0071, 0.0064, compiled=3, traced=3),
    "warm": Figures(Verdict.WARM, 3.84, 0.0072, 0.0065, traced=3),
    "local": Figures(Verdict.WARM, 3.31, 0.0072, 0.0064, traced=3),
}


def _sample(name: str, figures: Figures, run: int, calls: int) -> Sample:
    wobble = 1 + 0.06 * (run - 1)
    names = _STAGES_OF.get(name, tuple(_STAGES))
    inside = sum(_STAGES[stage] for stage in names[4:])
    stages = {stage: _STAGES[stage] * wobble for stage in names}
    before = sum(_STAGES[stage] for stage in names[:4])
    first = figures.first_s * wobble
    made = [CallTime("f32[8, 128]", first - inside, figures.traced, figures.compiled)]
    made += [CallTime("f32[8, 128]", figures.second_s * wobble)]
    made += [CallTime("f32[8, 128]", figures.steady_s * (1 + 0.01 * (at % 5))) for at in range(9)]
    return Sample(
        arm=name,
        verdict=figures.verdict,
        first_call_s=first,
        startup_s=before * wobble + 0.21 + first,
        stages=(*stages.items(), ("first call", first - inside - 0.05), ("second call", 0.01)),
        compiled=figures.compiled,
        native_builds=17 if figures.compiled else 0,
        difference=None if name == "eager" else 3.1e-7,
        summary=f"{figures.verdict}: 3/3 graphs from cache, {figures.compiled} compiled",
        calls=tuple(made[:calls]),
        peak_bytes=1_912_345_678,
    )


def make_arm(name: str, *, runs: int = 3, calls: int = 11, figures: Figures | None = None) -> Arm:
    """An arm whose samples lie a little apart."""
    figures = figures or FIGURES[name]
    return Arm(name, tuple(_sample(name, figures, run, calls) for run in range(runs)))


def make_trial(variant: Variant | None = None, **arm: int) -> Trial:
    """A variant with all arms and a bundle."""
    return Trial(
        variant=variant or Variant(),
        arms=tuple(make_arm(name, **arm) for name in FIGURES),
        bundle=Composition(
            address="demo-gpt/0123456789ab/fedcba987654",
            bytes=1_912_000,
            sections={
                "inductor": (24, 61, 8_400_000),
                "triton": (12, 80, 1_250_000),
                "megacache": (7, 7, 3_100_000),
            },
        ),
    )


def make_bench(*trials: Trial, **fields: object) -> Bench:
    """A bench of these trials, else of one that is complete."""
    bench = Bench(
        target="demo:gpt",
        workload="demo-gpt",
        options=WorkloadOptions(size="small", shapes=(8, 16)),
        runs=3,
        trials=trials or (make_trial(),),
        store="a temporary local store",
        environment=_ENVIRONMENT,
        created="2026-03-01T12:00:00.199416Z",
        items=1024,
        unit="tokens",
        command="tccache bench demo:gpt --size small --runs 3 --html page.html",
    )
    return replace(bench, **fields)  # type: ignore[arg-type]


def recompiled(trial: Trial) -> Trial:
    """The trial, its cold arm compiling again at the sixth call, for another shape."""
    arms = []
    for arm in trial.arms:
        again = CallTime("f32[16, 128]", 9.1, 1, 1, "tensor 'x' size mismatch: expected 8, got 16")
        samples = (
            replace(sample, calls=(*sample.calls[:5], again, *sample.calls[6:]))
            for sample in arm.samples
        )
        arms.append(replace(arm, samples=tuple(samples)) if arm.name == "cold" else arm)
    return replace(trial, arms=tuple(arms))


def make_variants() -> Bench:
    """A bench of three variants, one of them with a failure, ended early."""
    slow = replace(FIGURES["cold"], first_s=121.0, steady_s=0.0052)
    quick = replace(FIGURES["warm"], first_s=4.9, steady_s=0.0052)
    tuned = replace(
        make_trial(Variant("max-autotune")),
        arms=(
            make_arm("eager"),
            make_arm("cold", figures=slow),
            make_arm("warm", figures=quick),
        ),
    )
    regions = replace(
        make_trial(Variant(regions=True)),
        arms=(
            make_arm("eager"),
            make_arm("cold", figures=replace(FIGURES["cold"], first_s=14.8, steady_s=0.0069)),
        ),
        bundle=None,
    )
    failure = Failure("default+regions", "warm", "the arm turned out partial: 1 graph compiled")
    return make_bench(
        recompiled(make_trial()), tuned, regions, failures=(failure,), interrupted=True
    )


BENCHES: dict[str, Callable[[], Bench]] = {
    "complete": lambda: make_bench(recompiled(make_trial())),
    "variants": make_variants,
    "nothing": lambda: make_bench(Trial(Variant(), ())),
    "no trial": lambda: make_bench(trials=()),
    "one sample, no bundle": lambda: make_bench(replace(make_trial(runs=1), bundle=None), runs=1),
    "no steady calls": lambda: make_bench(make_trial(calls=2)),
    "no calls": lambda: make_bench(make_trial(calls=0)),
    "only eager": lambda: make_bench(Trial(Variant(), (make_arm("eager"),))),
    "only cold": lambda: make_bench(Trial(Variant(), (make_arm("cold"),))),
}
