"""The chart of stages: where the seconds of a start go, arm by arm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from cachesvc.core.bench import Trial
from cachesvc.core.measure import Arm
from cachesvc.page.chart import Chart
from cachesvc.page.drawing import across, bar_key, draw, headroom, key, label
from cachesvc.page.palette import INK, OTHER, PAPER, stage_style
from cachesvc.page.table import Cell, Table, duration
from cachesvc.page.wording import listed, seconds, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "Where the seconds of a start go"
_BEFORE = ("interpreter", "import torch", "import compiler", "build model", "import tccache")
_LATER = ("second call", "steady")

Segments = tuple[tuple[str, float], ...]


def stages_chart(trial: Trial, name: str) -> Chart:
    """A bar for each arm, from the start of the process to the first result."""
    parts = {arm.name: _segments(arm) for arm in trial.arms}
    description = _description(trial.arms, parts)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, arm in enumerate(trial.arms):
            _bar(axes, row, arm, parts[arm.name])
        axes.set_yticks(range(len(trial.arms)), [shortened(arm.name, 20) for arm in trial.arms])
        axes.set_xlabel("seconds from the start of the process (medians)")
        across(axes)
        headroom(axes, max(arm.startup_s.median for arm in trial.arms))
        _key(figure, parts.values())

    height = 1.7 + 0.5 * len(trial.arms) + 0.2 * math.ceil(len(_names(parts.values())) / 3)
    return Chart(
        name=name,
        title=_TITLE,
        description=description,
        svg=draw(name, _TITLE, description, height, paint),
        numbers=_numbers(trial.arms, parts),
    )


def _segments(arm: Arm) -> Segments:
    """The stages up to the first result; what no stage covers is `other`, on its side of the
    moment from which the first call counts."""
    stages = [(stage, value) for stage, value in arm.stages.items() if stage not in _LATER]
    before = list(takewhile(lambda item: item[0] in _BEFORE, stages))
    inside = stages[len(before) :]
    first = arm.first_call_s.median
    unnamed_before = arm.startup_s.median - first - math.fsum(value for _, value in before)
    unnamed = first - math.fsum(value for _, value in inside)
    told = [*before, (OTHER, unnamed_before), *inside[:-1], (OTHER, unnamed), *inside[-1:]]
    return tuple((stage, value) for stage, value in told if value > 0)


def _bar(axes: Axes, row: int, arm: Arm, parts: Segments) -> None:
    left = 0.0
    for stage, value in parts:
        look = stage_style(stage)
        axes.barh(
            row,
            value,
            left=left,
            height=0.62,
            color=look.colour,
            hatch=look.hatch,
            edgecolor=PAPER,
            linewidth=0.5,
        )
        left += value
    begins = left - arm.first_call_s.median
    axes.plot([begins, begins], [row - 0.43, row + 0.43], color=INK, linewidth=2)
    label(axes, left, row, seconds(arm.startup_s.median))


def _key(figure: Figure, parts: Iterable[Segments]) -> None:
    from matplotlib.lines import Line2D

    stages = [(name, bar_key(stage_style(name))) for name in _names(parts)]
    begins = Line2D([], [], color=INK, linewidth=2)
    key(figure, [*stages, ("the first call counts from here", begins)])


def _names(parts: Iterable[Segments]) -> list[str]:
    """All stages in their order: that of the arm that has most of them."""
    longest_first = sorted(parts, key=len, reverse=True)
    return list(dict.fromkeys(stage for segments in longest_first for stage, _ in segments))


def _description(arms: Iterable[Arm], parts: dict[str, Segments]) -> str:
    told = ["Stacked bars, one for each arm, in seconds from the start of the process."]
    for arm in arms:
        longest = sorted(parts[arm.name], key=lambda item: -item[1])[:3]
        named = listed([f"{stage} {seconds(value)}" for stage, value in longest])
        told.append(
            f"{arm.name}: {seconds(arm.startup_s.median)} to the first result,"
            f" {seconds(arm.first_call_s.median)} of them from the first call on; longest: {named}."
        )
    return " ".join(told)


def _numbers(arms: tuple[Arm, ...], parts: dict[str, Segments]) -> Table:
    def row(stage: str) -> tuple[Cell, ...]:
        return (
            Cell(stage),
            *(
                duration(sum(v for s, v in parts[arm.name] if s == stage))
                if any(s == stage for s, _ in parts[arm.name])
                else Cell("")
                for arm in arms
            ),
        )

    totals = (
        (Cell("process to result"), *(duration(arm.startup_s.median) for arm in arms)),
        (Cell("from the first call on"), *(duration(arm.first_call_s.median) for arm in arms)),
    )
    return Table(
        caption="Median seconds of each stage",
        header=("stage", *(arm.name for arm in arms)),
        rows=(*(row(stage) for stage in _names(parts.values())), *totals),
    )
