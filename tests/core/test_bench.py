"""A bench as a value: steady seconds, ratios, break-even calls, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from known_benches import arm, bench

from cachesvc.core.bench import Failure, Trial
from cachesvc.core.measure import Arm, CallTime
from cachesvc.core.report import Verdict
from cachesvc.core.variant import Variant


def test_steady_calls_come_from_the_third_round_on() -> None:
    """Where calls differ, a steady call is the mean over a round, and half a round is left out."""
    (sample,) = arm("warm", 1.0, runs=1).samples
    assert sample.steady_s == 0.5
    seconds = (9.0, 9.0, 9.0, 9.0, 1.0, 3.0, 2.0, 6.0, 100.0)
    calls = tuple(CallTime("call", number) for number in seconds)
    assert replace(sample, calls=calls, round_length=2).steady_s == 3.0
    assert replace(sample, calls=calls[:4], round_length=2).steady_s is None
    assert replace(sample, calls=()).steady_s is None


def test_ratios() -> None:
    """Cold over each other compiled arm by both boundaries, eager over compiled where steady."""
    (trial,) = bench().trials
    ratios = trial.ratios()
    assert ratios["cold_over_warm"]["first_call"] == pytest.approx(40.1 / 2.1)
    assert ratios["cold_over_warm"]["startup"] == pytest.approx(45.1 / 7.1)
    assert ratios["eager_over_warm"]["startup"] == pytest.approx(6.1 / 7.1)
    assert ratios["eager_over_warm"]["steady"] == ratios["eager_over_cold"]["steady"] == 2.0
    assert set(ratios) == {"cold_over_warm", "eager_over_cold", "eager_over_warm"}


def test_break_even() -> None:
    """Of the medians: 40.1 s and 1.0 s, then 0.5 s each, against 1.1 s and then 1.0 s each."""
    (trial,) = bench().trials
    cold, warm = trial.arm("cold"), trial.arm("warm")
    assert cold is not None
    assert warm is not None
    found = trial.break_even(cold)
    assert found is not None
    assert found.first_call == 2 + int((40.1 + 1.0 - 1.1 - 1.0) / 0.5) + 1
    assert found.startup == found.first_call  # the process takes both equally long
    assert trial.break_even(warm).first_call == 5  # type: ignore[union-attr]


def test_a_break_even_call_that_noise_decides() -> None:
    """Where a steady sample of one arm lies among the other's, or fewer than three were made, the
    call is not certain."""
    eager, warm = arm("eager", 1.0, 1.0), arm("warm", 2.0, 0.9)
    slow = replace(warm.samples[0], calls=arm("warm", 2.0, 1.1).samples[0].calls)
    for samples, certain in (
        (warm.samples, True),
        ((*warm.samples, slow), False),
        (warm.samples[:2], False),
    ):
        found = Trial(Variant(), (eager, Arm("warm", samples))).break_even(Arm("warm", samples))
        assert found is not None
        assert found.certain is certain


def test_the_worst_sample_counts() -> None:
    """An arm of which one sample was partial is partial, and outputs that differ are told."""
    warm = arm("warm", 2.0)
    odd = replace(
        warm.samples[1],
        verdict=Verdict.PARTIAL,
        difference=float("inf"),
        differences=("it is no number",),
    )
    found = Arm("local", (warm.samples[0], odd, warm.samples[2]))
    assert found.verdict is Verdict.PARTIAL
    assert found.differences == ("it is no number",)
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (told["verdict"], told["max_abs_difference"]) == ("partial", None)


def test_throughput() -> None:
    """Items over steady seconds; a training step that is given twice counts, calls of several
    lengths do not, as each works on another number of items."""
    found, (sample,) = bench(), arm("warm", 2.0, runs=1).samples
    twice = replace(sample, calls=sample.calls[-1:] * 6, round_length=2)
    assert found.throughput(Arm("warm", (twice,))) == pytest.approx(128)
    mixed = tuple(replace(call, signature=f"call {n % 2}") for n, call in enumerate(twice.calls))
    assert found.throughput(Arm("warm", (replace(twice, calls=mixed),))) is None


def test_json() -> None:
    """`arms` at the top are those of the first variant; raw samples, verdicts and spreads are told;
    the whole is plain JSON."""
    (first,) = bench().trials
    second = Trial(Variant(regions=True), first.arms)
    told = json.loads(json.dumps(bench(first, second).to_json()))
    assert told["arms"] == told["variants"]["default"]["arms"]
    assert list(told["variants"]) == ["default", "default+regions"]
    warm = told["arms"]["warm"]
    assert warm["verdict"] == "warm"
    assert warm["first_call_s"] == {
        "median": 2.1,
        "min": 2.0,
        "max": 2.2,
        "samples": [2.0, 2.1, 2.2],
    }
    assert [sample["first_call_s"] for sample in warm["samples"]] == [2.0, 2.1, 2.2]
    assert warm["startup_s"]["median"] == pytest.approx(7.1)
    assert warm["steady_s"]["median"] == 0.5
    assert warm["throughput_per_s"] == 128
    assert warm["break_even_call"] == {"first_call": 5, "startup": 5, "certain": True}
    assert told["arms"]["eager"]["break_even_call"] is None
    assert told["bundle"]["bytes"] == 1000
    assert told["bundle"]["sections"]["inductor"] == {"units": 2, "files": 4, "bytes": 900}
    assert told["variants"]["default+regions"]["bundle"] is None
    assert told["environment"]["components"] == {"torch": "2.13.0"}


def test_what_is_missing_is_told_as_missing() -> None:
    """An interrupted bench of which only eager was measured; calls that nobody repeated."""
    eager = arm("eager", 1.0)
    (only,) = bench(Trial(Variant(), (eager,)), interrupted=True).trials
    assert only.ratios() == {}
    short = Arm("warm", tuple(replace(sample, calls=()) for sample in eager.samples))
    trial = Trial(Variant(), (eager, short))
    assert trial.break_even(short) is None
    told = bench(trial).to_json()
    assert told["arms"]["warm"]["steady_s"] is None  # type: ignore[index, call-overload]
    assert str(Failure("default", "warm", "why")) == "default, warm: why"
