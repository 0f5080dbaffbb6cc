"""Measured seconds of several fresh processes, and what is said about them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cachesvc.core.break_even import Cost
from cachesvc.core.digest import Json
from cachesvc.core.report import Verdict

_WORSE = (
    *(Verdict.WARM, Verdict.PARTIAL, Verdict.COLD),
    *(Verdict.INERT, Verdict.UNPROVEN, Verdict.EAGER),
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Samples of one figure in seconds: never the best alone."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def overlaps(self, other: Spread) -> bool:
        """Whether a sample of one lies among those of the other."""
        return max(min(self.samples), min(other.samples)) <= min(
            max(self.samples), max(other.samples)
        )

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
class CallTime:
    """One call of a sample: its seconds, and what the compiler did meanwhile.

    `traced` are the graphs that Dynamo captured, `compiled` those of them that came from no cache;
    `reason` is the guard that failed, where the code was compiled again.
    """

    signature: str
    seconds: float
    traced: int = 0
    compiled: int = 0
    reason: str = ""

    def to_json(self) -> dict[str, Json]:
        return {
            "signature": self.signature,
            "seconds": self.seconds,
            "traced": self.traced,
            "compiled": self.compiled,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Sample:
    """One fresh process of one arm.

    `first_call_s`: from the call of `warm_start`, or the first call of the model, to the first
    result. `startup_s`: from the start of the process to the first result. `difference` is the
    greatest one between an output and the eager arm's, `differences` are those beyond the
    tolerance of their dtypes, in sentences. `calls` are all calls in order, round after round of
    `round_length` calls; those from the third round on are steady. `peak_bytes` is the greatest
    resident memory of the process, `device_peak_bytes` what its tensors took on the GPU.
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
    calls: tuple[CallTime, ...] = ()
    round_length: int = 1
    peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    differences: tuple[str, ...] = ()

    @property
    def steady_s(self) -> float | None:
        """The median seconds of a steady call; where calls differ, of the mean over a round."""
        size = self.round_length
        steady = [call.seconds for call in self.calls[2 * size :]]
        rounds = [steady[at : at + size] for at in range(0, len(steady), size)]
        means = [statistics.fmean(group) for group in rounds if len(group) == size]
        return statistics.median(means) if means else None

    def to_json(self) -> dict[str, Json]:
        return {
            "verdict": self.verdict.value,
            "first_call_s": self.first_call_s,
            "startup_s": self.startup_s,
            "steady_s": self.steady_s,
            "stages": dict(self.stages),
            "compiled": self.compiled,
            "native_builds": self.native_builds,
            "difference": finite(self.difference),
            "differences": list(self.differences),
            "calls": [call.to_json() for call in self.calls],
            "peak_bytes": self.peak_bytes,
            "device_peak_bytes": self.device_peak_bytes,
            "summary": self.summary,
        }


@dataclass(frozen=True, slots=True)
class Arm:
    """All samples of one arm; its verdict is the worst that one of them had."""

    name: str
    samples: tuple[Sample, ...]

    @property
    def verdict(self) -> Verdict:
        return max((sample.verdict for sample in self.samples), key=_WORSE.index)

    @property
    def first_call_s(self) -> Spread:
        return Spread(tuple(sample.first_call_s for sample in self.samples))

    @property
    def startup_s(self) -> Spread:
        return Spread(tuple(sample.startup_s for sample in self.samples))

    @property
    def steady_s(self) -> Spread | None:
        """Seconds of a steady call; None where too few calls were made."""
        each = [sample.steady_s for sample in self.samples]
        known = tuple(seconds for seconds in each if seconds is not None)
        return Spread(known) if known else None

    @property
    def difference(self) -> float | None:
        """The greatest of all samples; None where none was compared."""
        each = (sample.difference for sample in self.samples)
        return max((apart for apart in each if apart is not None), default=None)

    @property
    def differences(self) -> tuple[str, ...]:
        """Those beyond the tolerance, of all samples."""
        return tuple(dict.fromkeys(text for s in self.samples for text in s.differences))

    @property
    def are_alike(self) -> bool:
        """Whether all calls are of one kind, so that each works on as many items."""
        return len({call.signature for sample in self.samples for call in sample.calls}) == 1

    @property
    def peak_bytes(self) -> int | None:
        return max((s.peak_bytes for s in self.samples if s.peak_bytes is not None), default=None)

    @property
    def device_peak_bytes(self) -> int | None:
        each = (sample.device_peak_bytes for sample in self.samples)
        return max((size for size in each if size is not None), default=None)

    @property
    def calls(self) -> tuple[CallTime, ...]:
        """The calls one by one: median seconds, and the compiles of the first sample."""
        columns = zip(*(sample.calls for sample in self.samples), strict=False)
        return tuple(
            replace(column[0], seconds=statistics.median(call.seconds for call in column))
            for column in columns
        )

    def cost(self, first_s: float) -> Cost | None:
        """What calls take, the first one `first_s` seconds; None where no call was steady."""
        steady = self.steady_s
        if steady is None:
            return None
        settling = self.calls[1 : 2 * self.samples[0].round_length]
        return Cost((first_s, *(call.seconds for call in settling)), steady.median)

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
            "max_abs_difference": finite(self.difference),
            "differences": list(self.differences),
            "steady_s": self.steady_s.to_json() if self.steady_s else None,
            "peak_bytes": self.peak_bytes,
            "device_peak_bytes": self.device_peak_bytes,
            "samples": [sample.to_json() for sample in self.samples],
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


def finite(number: float | None) -> float | None:
    """The number, or None for one that JSON cannot hold."""
    return number if number is not None and math.isfinite(number) else None


def arms_of(samples: Iterable[Sample]) -> tuple[Arm, ...]:
    """The samples by arm, in the order in which the arms first came."""
    by_arm: dict[str, list[Sample]] = {}
    for sample in samples:
        by_arm.setdefault(sample.arm, []).append(sample)
    return tuple(Arm(name, tuple(group)) for name, group in by_arm.items())
