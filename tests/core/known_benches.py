"""Benches made up for tests, of seconds that are known."""

from __future__ import annotations

from cachesvc.core.bench import Bench, Composition, Trial
from cachesvc.core.components import Components
from cachesvc.core.measure import Arm, CallTime, Sample
from cachesvc.core.report import Verdict
from cachesvc.core.variant import Variant
from cachesvc.core.workload_options import WorkloadOptions

VERDICTS = {"eager": Verdict.EAGER, "cold": Verdict.COLD, "megacache": Verdict.PARTIAL}
PROCESS_S = 5.0


def arm(name: str, first: float, steady: float = 0.5, *, runs: int = 3, second: float = 1.0) -> Arm:
    """An arm whose samples differ by a tenth of a second in the first call."""
    return Arm(name, tuple(_sample(name, first + run / 10, second, steady) for run in range(runs)))


def _sample(name: str, first: float, second: float, steady: float) -> Sample:
    seconds = (first, second, steady, steady, steady)
    return Sample(
        arm=name,
        verdict=VERDICTS.get(name, Verdict.WARM),
        first_call_s=first,
        startup_s=first + PROCESS_S,
        stages=(("import torch", 2.0), ("first call", first), ("second call", second)),
        compiled=int(name == "cold"),
        native_builds=2 * int(name == "cold"),
        difference=0.0,
        summary=f"{name}: made up",
        calls=tuple(CallTime("call (x)", number) for number in seconds),
        peak_bytes=100_000_000,
    )


def bench(
    *trials: Trial, runs: int = 3, warm: float = 2.0, cold: float = 40.0, interrupted: bool = False
) -> Bench:
    """One variant with the three arms of a demo, unless other trials are given."""
    arms = (arm("eager", 1.0, 1.0, runs=runs), arm("cold", cold, runs=runs), arm("warm", warm))
    bundle = Composition("gpt/m/e", 1000, {"inductor": (2, 4, 900), "megacache": (1, 1, 100)})
    return Bench(
        target="demo:gpt",
        workload="demo-gpt",
        options=WorkloadOptions(),
        runs=runs,
        trials=trials or (Trial(Variant(), arms, bundle),),
        store="a temporary local store",
        environment=Components.of({"torch": "2.13.0"}),
        created="2026-01-02T03:04:05.000006Z",
        items=64,
        unit="tokens",
        command="tccache bench demo:gpt",
        interrupted=interrupted,
    )
