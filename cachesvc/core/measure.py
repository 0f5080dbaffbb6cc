"""Measured seconds of several fresh processes, and what is said about them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from cachesvc.core.digest import Json
from cachesvc.core.report import Verdict


@dataclass(frozen=True, slots=True)
class Spread:
    """Samples of one figure in seconds: never the best alone."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def to_json(self) -> dict[str, Json]:
        return {
            "median": self.median,
            "min": min(self.samples),
            "max": max(self.samples),
            "samples": list(self.samples),
        }

    def __str__(self) -> str:
        if len(self.samples) == 1:
            return f"{self.median:.2f} s"
        return f"{self.median:.2f} s ({min(self.samples):.2f} to {max(self.samples):.2f})"


@dataclass(frozen=True, slots=True)
class Sample:
    """One fresh process of one arm.

    `first_call_s`: from the call of `warm_start`, or the first call of the model, to the first
    result. `startup_s`: from the start of the process to the first result.
    """

    arm: str
    verdict: Verdict
    first_call_s: float
    startup_s: float
    stages: tuple[tuple[str, float], ...]
    compiled: int
    native_builds: int
    difference: float | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Arm:
    """All samples of one arm; its verdict is the one that each of them had."""

    name: str
    samples: tuple[Sample, ...]

    @property
    def verdict(self) -> Verdict:
        return self.samples[0].verdict

    @property
    def first_call_s(self) -> Spread:
        return Spread(tuple(sample.first_call_s for sample in self.samples))

    @property
    def startup_s(self) -> Spread:
        return Spread(tuple(sample.startup_s for sample in self.samples))

    @property
    def stages(self) -> dict[str, float]:
        """The median seconds of each stage, in the order of the first sample."""
        names = [name for name, _ in self.samples[0].stages]
        each = [dict(sample.stages) for sample in self.samples]
        return {name: statistics.median(s.get(name, 0.0) for s in each) for name in names}

    def to_json(self) -> dict[str, Json]:
        stages: dict[str, Json] = {**self.stages}
        return {
            "verdict": self.verdict.value,
            "first_call_s": self.first_call_s.to_json(),
            "startup_s": self.startup_s.to_json(),
            "stages": stages,
            "compiled": max(sample.compiled for sample in self.samples),
            "native_builds": max(sample.native_builds for sample in self.samples),
            "max_abs_difference": max(
                (sample.difference for sample in self.samples if sample.difference is not None),
                default=None,
            ),
        }


@dataclass(frozen=True, slots=True)
class Measurement:
    """The arms of one workload, measured interleaved on one machine."""

    workload: str
    runs: int
    arms: tuple[Arm, ...]
    store: str
    pack_bytes: int
    environment: str

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def ratio(self, slow: str, fast: str) -> float:
        """How many times longer the first call of one arm takes than that of another, medians."""
        return self.arm(slow).first_call_s.median / self.arm(fast).first_call_s.median

    def startup_ratio(self, slow: str, fast: str) -> float:
        """The same from the start of the process."""
        return self.arm(slow).startup_s.median / self.arm(fast).startup_s.median


def arms_of(samples: Iterable[Sample]) -> tuple[Arm, ...]:
    """The samples by arm, in the order in which the arms first came."""
    by_arm: dict[str, list[Sample]] = {}
    for sample in samples:
        by_arm.setdefault(sample.arm, []).append(sample)
    return tuple(Arm(name, tuple(group)) for name, group in by_arm.items())
