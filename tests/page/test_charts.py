"""What each chart says: its words and its numbers are those of the bench."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from cachesvc.core.bench import Trial
from cachesvc.core.measure import CallTime
from cachesvc.page.break_even_chart import break_even_chart
from cachesvc.page.bundle_chart import bundle_chart
from cachesvc.page.calls_chart import calls_chart
from cachesvc.page.chart import Chart, NoChart
from cachesvc.page.stages_chart import stages_chart
from cachesvc.page.variants_chart import variants_chart

from .benches import FIGURES, make_arm, make_trial, make_variants, recompiled
from .reading import Page

pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time, and these tests read words."""
    for name in ("stages", "calls", "break_even", "bundle", "variants"):
        monkeypatch.setattr(f"cachesvc.page.{name}_chart.draw", lambda *_: "")


def only(*names: str) -> Trial:
    """A trial of these arms."""
    return replace(make_trial(), arms=tuple(make_arm(name) for name in names))


def rows(chart: Chart | NoChart) -> dict[str, tuple[str, ...]]:
    """The numbers of a chart by the first cell of their row."""
    assert isinstance(chart, Chart)
    return {row[0].text: tuple(cell.text for cell in row[1:]) for row in chart.numbers.rows}


def test_stages_add_up_to_the_start() -> None:
    """What no stage covers is `other`; what comes after the first result is left out."""
    chart = stages_chart(only("eager"), "x")
    assert rows(chart) == {
        "interpreter": ("50.0 ms",),
        "import torch": ("2.10 s",),
        "build model": ("400 ms",),
        "other": ("260 ms",),
        "first call": ("160 ms",),
        "process to result": ("2.97 s",),
        "from the first call on": ("210 ms",),
    }
    assert "eager: 2.97 s to the first result, 210 ms of them from the first call on" in (
        chart.description
    )
    assert "longest: import torch 2.10 s, build model 400 ms and other" in chart.description


def test_each_arm_has_its_own_stages() -> None:
    """In the order in which they come; a cell stays empty where an arm has no such stage."""
    told = rows(stages_chart(only("eager", "warm"), "x"))
    assert told["pull"] == ("", "110 ms")
    assert list(told)[1:5] == ["import torch", "import compiler", "build model", "other"]


def test_calls_that_stand_out_are_named() -> None:
    """First calls, compiles with the guard that failed, and what is slow without a compile."""
    chart = calls_chart(recompiled(only("eager", "cold", "warm")), "x")
    assert isinstance(chart, Chart)
    assert chart.remarks == (
        "cold, call 1 (38.2 s): 3 graphs compiled",
        "cold, call 6 (9.10 s): 1 graph compiled because tensor 'x' size mismatch: expected 8, got"
        " 16",
        "eager, call 1 (210 ms): slow, though nothing was traced",
        "warm, call 1 (3.51 s): 3 graphs traced and taken from a cache",
    )
    assert all(remark in chart.description for remark in chart.remarks)
    assert rows(chart)["6"][2] == "9.10 s"
    assert chart.numbers.rows[5][3].note == (
        "1 traced, 1 compiled: tensor 'x' size mismatch: expected 8, got 16"
    )


def test_many_calls_that_stand_out_are_counted() -> None:
    """A workload that compiles at every call does not bury the page in sentences."""
    cold = make_arm("cold", runs=1)
    calls = tuple(CallTime(f"f32[{size}]", 1.0, 1, 1) for size in range(40))
    arm = replace(cold, samples=(replace(cold.samples[0], calls=calls),))
    chart = calls_chart(replace(make_trial(), arms=(arm,)), "x")
    assert isinstance(chart, Chart)
    assert len(chart.remarks) == 13
    assert chart.remarks[-1] == "28 more calls stand out: see the numbers"
    assert len(chart.numbers.rows) == 40


def test_arms_of_unlike_length_share_a_table() -> None:
    """An arm that was cut short leaves its cells empty."""
    trial = replace(make_trial(), arms=(make_arm("eager", calls=3), make_arm("warm", calls=5)))
    assert rows(calls_chart(trial, "x"))["5"][1:] == ("", "6.63 ms")


def test_break_even_calls_are_the_trial_s() -> None:
    """At both boundaries, in the words and in the numbers."""
    trial = only("eager", "cold", "warm")
    chart = break_even_chart(trial, "x")
    assert isinstance(chart, Chart)
    for name in ("cold", "warm"):
        arm = trial.arm(name)
        assert arm is not None
        pays = trial.break_even(arm)
        assert pays is not None
        expected = (f"{pays.first_call:,}", f"{pays.startup:,}")
        assert rows(chart)[name][-2:] == expected
        for number, remark in zip(expected, chart.remarks, strict=True):
            assert f"{name} from call {number}" in remark
    assert rows(chart)["eager"][-2:] == ("", "")
    assert all(remark in chart.description for remark in chart.remarks)


def test_what_never_pays_is_said() -> None:
    """An arm that is no quicker than eager has no break-even call."""
    slow = make_arm("cold", figures=replace(FIGURES["cold"], steady_s=0.5))
    chart = break_even_chart(replace(make_trial(), arms=(make_arm("eager"), slow)), "x")
    assert rows(chart)["cold"][-2:] == ("never", "never")
    assert "Pays, counted from the first call: cold never." in chart.description  # type: ignore[union-attr]


def test_calls_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """An axis of calls names no half ones, rounded or not: its marks are evenly apart."""
    monkeypatch.undo()
    slow = make_arm("cold", figures=replace(FIGURES["cold"], steady_s=0.5))
    chart = break_even_chart(replace(make_trial(), arms=(make_arm("eager"), slow)), "x")
    assert isinstance(chart, Chart)
    words = Page(chart.svg).words("text")
    marks = [int(word) for word in words[: words.index("0", 1)]]
    assert len(marks) > 3
    assert len({after - before for before, after in pairwise(marks)}) == 1


@pytest.mark.parametrize("names", [("cold", "warm"), ("eager",)])
def test_no_break_even_without_two_sides(names: tuple[str, ...]) -> None:
    """It takes eager calls and compiled ones."""
    assert isinstance(break_even_chart(only(*names), "x"), NoChart)


def test_the_bundle_by_section() -> None:
    """The greatest section first; what it takes in the store is said beside."""
    chart = bundle_chart(make_trial(), "x")
    assert list(rows(chart).items()) == [
        ("inductor", ("24", "61", "8,400,000")),
        ("megacache", ("7", "7", "3,100,000")),
        ("triton", ("12", "80", "1,250,000")),
    ]
    assert "inductor: 8.40 MB, 61 files in 24 units." in chart.description  # type: ignore[union-attr]
    assert "Packed, the bundle takes 1.91 MB." in chart.description  # type: ignore[union-attr]


def test_variants_side_by_side() -> None:
    """Cold, warm and steady of each variant, and the eager call that all are held against."""
    chart = variants_chart(make_variants().trials, "x")
    assert rows(chart) == {
        "default": ("38.2 s", "3.84 s", "6.63 ms"),
        "max-autotune": ("121 s", "4.90 s", "5.30 ms"),
        "default+regions": ("14.8 s", "\N{EN DASH}", "7.04 ms"),
        "eager": ("", "", "10.4 ms"),
    }
    assert "max-autotune: cold 121 s, warm 4.90 s, steady 5.30 ms." in chart.description


def test_variants_without_figures_are_not_measured() -> None:
    """A variant whose every compiled arm failed stands in its row."""
    chart = variants_chart((only("eager"), only("cold")), "x")
    assert "default: not measured." in chart.description


def test_dollars_are_no_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib would set what stands between them as mathematics, or refuse it."""
    monkeypatch.undo()
    bundle = make_trial().bundle
    assert bundle is not None
    names = {"$x_1$": (1, 1, 1), r"$\bad{$": (1, 1, 1)}
    chart = bundle_chart(replace(make_trial(), bundle=replace(bundle, sections=names)), "x")
    assert isinstance(chart, Chart)
    assert {*names} <= {*Page(chart.svg).words("text")}


@pytest.mark.parametrize("quicker", [2.0, 40.0])
def test_crossings_are_drawn(quicker: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each crossing has its number, on plain axes and on logarithmic ones."""
    monkeypatch.undo()
    eager = make_arm("eager", figures=replace(FIGURES["eager"], steady_s=0.02))
    warm = make_arm("warm", figures=replace(FIGURES["warm"], first_s=38.2 / quicker))
    trial = replace(make_trial(), arms=(eager, make_arm("cold"), warm))
    chart = break_even_chart(trial, "x")
    assert isinstance(chart, Chart)
    drawn = set(Page(chart.svg).words("text"))
    numbers = set(re.findall(r"call ([\d,]*\d)", " ".join(chart.remarks)))
    assert len(numbers) == 4
    assert {f"call {number}" for number in numbers} <= drawn
    assert ("number of calls (log scale)" in drawn) is (quicker > 8)
