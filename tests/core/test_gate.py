"""The gate: ratios of arms beside those of an earlier bench."""

from __future__ import annotations

from typing import Any

import pytest
from known_benches import bench

from cachesvc.core.bench import Bench, Trial
from cachesvc.core.components import Components
from cachesvc.core.errors import UsageError
from cachesvc.core.gate import MARGIN, SCHEMA, Baseline, compare_with


def _baseline(of: Bench, **changes: Any) -> Baseline:
    return Baseline.read({"schema": SCHEMA, **of.to_json(), **changes}, "before.json")


def test_the_same_passes() -> None:
    """A bench beside itself: every ratio is there, none is worse."""
    compared = compare_with(_baseline(bench()), bench().to_json(), 0.0)
    assert len(compared.changes) == 6
    assert not compared.regressions
    assert compared.to_json()["ok"] is True


def test_a_slower_arm_fails() -> None:
    """Warm starts that take twice as long; the other ratios are as before."""
    compared = compare_with(_baseline(bench()), bench(warm=4.2).to_json(), MARGIN)
    assert [str(change) for change in compared.regressions] == [
        "default: cold over warm, first call: 19.10 -> 9.33"
    ]
    assert compared.to_json()["ok"] is False


def test_the_margin_decides() -> None:
    """40.1 s over 2.5 s is 16 % less than 40.1 s over 2.1 s."""
    before, now = _baseline(bench()), bench(warm=2.4).to_json()
    assert compare_with(before, now, 0.15).regressions
    assert not compare_with(before, now, 0.17).regressions


def test_a_faster_arm_passes() -> None:
    """What got better is no regression, however much."""
    assert not compare_with(_baseline(bench()), bench(warm=0.1).to_json(), 0.0).regressions


def test_an_arm_that_is_missing_fails() -> None:
    """An arm that failed now has no ratio; what is measured for the first time does not count."""
    (trial,) = bench().trials
    without = bench(Trial(trial.variant, trial.arms[:2], trial.bundle))
    missing = compare_with(_baseline(bench()), without.to_json(), 0.5).regressions
    assert {change.arms for change in missing} == {"cold_over_warm", "eager_over_warm"}
    assert "not measured" in str(missing[0])
    assert not compare_with(_baseline(without), bench().to_json(), 0.0).regressions


def test_cold_starts_that_got_faster_are_told() -> None:
    """Warm ones win less then: the ratio is worse, and a note says why."""
    compared = compare_with(_baseline(bench()), bench(cold=20.0).to_json(), MARGIN)
    assert {change.arms for change in compared.regressions} == {"cold_over_warm"}
    (note,) = compared.notes
    assert note.startswith("default: cold starts got faster")


def test_starts_that_all_got_slower_fail() -> None:
    """Cold and warm alike: eager is what they are held against."""
    compared = compare_with(_baseline(bench()), bench(cold=80.0, warm=4.1).to_json(), MARGIN)
    assert "default: eager over cold, startup" in str(compared.regressions[0])


def test_what_makes_them_hard_to_compare_is_told() -> None:
    """Another environment, other sizes; and nothing where both are equal."""
    other = {"digest": Components.of({"torch": "2.12.0"}).digest}
    before = _baseline(bench(), environment=other, options={"size": "tiny"})
    assert len(compare_with(before, bench().to_json(), 0.5).notes) == 2
    for partial in ({"interrupted": True}, {"failures": [{"arm": "warm"}]}):
        (note,) = compare_with(_baseline(bench(), **partial), bench().to_json(), 0.5).notes
        assert "not whole" in note
    assert compare_with(_baseline(bench()), bench().to_json(), 0.5).notes == ()


@pytest.mark.parametrize("value", [None, 7, [], {}, {"schema": "tccache.demo/1"}])
def test_what_is_no_bench(value: object) -> None:
    """Any other JSON is refused by its place."""
    with pytest.raises(UsageError, match=r"before\.json is no bench"):
        Baseline.read(value, "before.json")


@pytest.mark.parametrize(
    "variants",
    [None, {}, {"default": 1}, {"default": {"ratios": [1]}}, {"d": {"ratios": {"a": {"b": "1"}}}}],
)
def test_no_ratios(variants: object) -> None:
    """A baseline that nothing can be compared with would let everything pass."""
    with pytest.raises(UsageError, match="holds no ratios"):
        Baseline.read({"schema": SCHEMA, "variants": variants}, "before.json")


def test_another_target() -> None:
    """Its ratios say nothing of this one."""
    with pytest.raises(UsageError, match="a bench of demo:gpt, not of demo:mlp"):
        _baseline(bench()).check_target("demo:mlp")
