"""Measurements: medians with their spread, by arm, never the best sample alone."""

from __future__ import annotations

import pytest

from cachesvc.core.measure import Arm, Measurement, Sample, Spread, arms_of
from cachesvc.core.report import Verdict


def _sample(arm: str, first: float, startup: float = 10.0, **fields: object) -> Sample:
    verdict = Verdict.COLD if arm == "cold" else Verdict.WARM
    stages = (("import", 1.0), ("first call", first))
    return Sample(arm, verdict, first, startup, stages, compiled=3, native_builds=1, **fields)  # type: ignore[arg-type]


SAMPLES = [
    _sample("cold", 40.0, 60.0),
    _sample("warm", 1.0, 20.0, difference=0.0),
    _sample("cold", 50.0, 70.0),
    _sample("warm", 3.0, 22.0, difference=0.5),
    _sample("cold", 42.0, 62.0),
    _sample("warm", 2.0, 21.0),
]


def test_spread() -> None:
    """A figure is its median with the least and the greatest; one sample alone is just itself."""
    assert str(Spread((3.0, 1.0, 2.0))) == "2.00 s (1.00 to 3.00)"
    assert str(Spread((3.0,))) == "3.00 s"
    assert Spread((3.0, 1.0, 2.5)).to_json() == {
        "median": 2.5,
        "min": 1.0,
        "max": 3.0,
        "samples": [3.0, 1.0, 2.5],
    }


def test_arms() -> None:
    """Interleaved samples come back by arm, in the order in which the arms first came."""
    cold, warm = arms_of(SAMPLES)
    assert (cold.name, warm.name) == ("cold", "warm")
    assert cold.first_call_s.samples == (40.0, 50.0, 42.0)
    assert cold.verdict is Verdict.COLD
    assert warm.stages == {"import": 1.0, "first call": 2.0}
    assert warm.to_json()["max_abs_difference"] == 0.5
    assert cold.to_json()["max_abs_difference"] is None


def test_ratios() -> None:
    """Ratios are of medians, at both boundaries: the first call, and the whole start."""
    measured = Measurement("demo:gpt", 3, arms_of(SAMPLES), "/store", 1, "e" * 64)
    assert measured.ratio("cold", "warm") == pytest.approx(21.0)
    assert measured.startup_ratio("cold", "warm") == pytest.approx(62 / 21)
    assert isinstance(measured.arm("warm"), Arm)
