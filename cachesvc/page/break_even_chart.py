"""The chart of break-even calls: seconds of all calls together, with and without compiling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachesvc.core.arms import EAGER
from cachesvc.core.bench import Trial
from cachesvc.core.break_even import Cost, break_even
from cachesvc.core.measure import Arm
from cachesvc.page.chart import Chart, NoChart
from cachesvc.page.drawing import BACKING, draw, key, line_key, mark
from cachesvc.page.palette import arm_style
from cachesvc.page.table import Cell, Table
from cachesvc.page.wording import listed, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "From which call on compiling pays"
_POINTS = 160
_WIDE = 8
"""From this ratio of the last break-even call to the first on, the axes are logarithmic."""
_FEW = 20
_NEAR = 0.12
_ROOM = 0.25
"""Shares of the width: what is nearer shares a label; a label to the left takes so much."""


@dataclass(frozen=True, slots=True)
class _Line:
    """What the calls of one arm take together; `pays` is None for eager, and for never."""

    arm: str
    cost: Cost
    pays: int | None

    @property
    def told(self) -> str:
        return f"{self.arm} {'never' if self.pays is None else f'from call {self.pays:,}'}"


@dataclass(frozen=True, slots=True)
class _Panel:
    """One boundary."""

    counted: str
    lines: tuple[_Line, ...]


def break_even_chart(trial: Trial, name: str) -> Chart | NoChart:
    """Two drawings in one, by boundary, with a line for each arm that has steady calls."""
    eager = trial.arm(EAGER)
    arms = [arm for arm in trial.arms if arm.steady_s is not None]
    if eager not in arms or len(arms) < 2:
        return NoChart(_TITLE, "it takes steady calls of the eager arm and of a compiled one")
    panels = (
        _Panel("counted from the first call", _lines(arms, startup=False)),
        _Panel("counted from the start of the process", _lines(arms, startup=True)),
    )
    description = _description(panels)

    def paint(figure: Figure) -> None:
        for axes, panel in zip(figure.subplots(len(panels), 1), panels, strict=True):
            _paint(axes, panel, _end(panels), logarithmic=_wide(panels))
        axes.set_xlabel("number of calls" + (" (log scale)" if _wide(panels) else ""))
        key(figure, [(arm.name, line_key(arm_style(arm.name))) for arm in arms])

    return Chart(
        name=name,
        title=_TITLE,
        description=description,
        svg=draw(name, _TITLE, description, 6.4, paint),
        numbers=_numbers(arms, panels),
        remarks=tuple(map(_told, panels)),
    )


def _lines(arms: list[Arm], *, startup: bool) -> tuple[_Line, ...]:
    """The eager arm first."""
    firsts = {arm.name: (arm.startup_s if startup else arm.first_call_s).median for arm in arms}
    costs = {arm.name: cost for arm in arms if (cost := arm.cost(firsts[arm.name])) is not None}
    plain = costs.pop(EAGER)
    compiled = (_Line(name, cost, break_even(cost, plain)) for name, cost in costs.items())
    return (_Line(EAGER, plain, None), *compiled)


def _crossings(panels: tuple[_Panel, ...]) -> list[int]:
    return [line.pays for panel in panels for line in panel.lines if line.pays is not None]


def _end(panels: tuple[_Panel, ...]) -> int:
    """The number of calls up to which is drawn: some more than the last crossing needs."""
    return max(_FEW, math.ceil(max(_crossings(panels), default=0) * 1.35))


def _wide(panels: tuple[_Panel, ...]) -> bool:
    crossings = _crossings(panels)
    return bool(crossings) and max(crossings) > _WIDE * min(crossings)


def _paint(axes: Axes, panel: _Panel, end: int, *, logarithmic: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for line in panel.lines:
        look = arm_style(line.arm)
        calls = _counts(end, logarithmic=logarithmic)
        axes.plot(
            calls,
            [line.cost.total(number) for number in calls],
            color=look.colour,
            linestyle=look.dash,
            marker=look.marker,
            markevery=0.12,
            markersize=4.5,
            linewidth=1.5,
        )
    axes.set_title(panel.counted, fontsize=10, loc="left")
    axes.set_ylabel("seconds, all calls" + (" (log)" if logarithmic else ""))
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.set_xlim(0, end)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    _mark(axes, panel, lambda pays: math.log(pays, end) if logarithmic else pays / end)


def _counts(end: int, *, logarithmic: bool) -> list[int]:
    """Numbers of calls, spread over the axis."""
    shares = [step / _POINTS for step in range(_POINTS + 1)]
    if logarithmic:
        return sorted({round(end**share) for share in shares})
    return sorted({max(1, round(end * share)) for share in shares})


def _mark(axes: Axes, panel: _Panel, share: Callable[[int], float]) -> None:
    """A ring at each crossing, and its number; one label for those that lie close together."""
    crossings = sorted((line.pays, line.cost.total(line.pays)) for line in panel.lines if line.pays)
    for at in crossings:
        axes.add_line(mark("o", *at))
    for group in _groups(crossings, share):
        numbers = listed([f"{pays:,}" for pays, _ in group])
        at_left = share(group[0][0]) < _ROOM
        axes.annotate(
            f"{'call' if len(group) == 1 else 'calls'} {numbers}",
            group[0],
            xytext=(4 if at_left else -4, 10),
            textcoords="offset points",
            ha="left" if at_left else "right",
            va="bottom",
            bbox=BACKING,
        )


def _groups(
    crossings: list[tuple[int, float]], share: Callable[[int], float]
) -> list[list[tuple[int, float]]]:
    groups: list[list[tuple[int, float]]] = []
    for at in crossings:
        if groups and share(at[0]) - share(groups[-1][0][0]) < _NEAR:
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


def _description(panels: tuple[_Panel, ...]) -> str:
    what = "Lines, one for each arm: the seconds of all calls together over their number."
    return " ".join([what, *(f"{_told(panel)}." for panel in panels)])


def _told(panel: _Panel) -> str:
    """From which call on each arm pays, at one boundary."""
    pays = [line.told for line in panel.lines if line.arm != EAGER]
    return f"Pays, {panel.counted}: {', '.join(pays)}"


def _numbers(arms: list[Arm], panels: tuple[_Panel, ...]) -> Table:
    first, startup = ({line.arm: line for line in panel.lines} for panel in panels)
    rows = (
        (
            Cell(arm.name),
            Cell(seconds(arm.first_call_s.median)),
            Cell(seconds(arm.startup_s.median)),
            Cell(seconds(first[arm.name].cost.steady)),
            *(_pays(lines[arm.name]) for lines in (first, startup)),
        )
        for arm in arms
    )
    return Table(
        caption="What the lines are made of",
        header=(
            "arm",
            "first call",
            "process to result",
            "steady call",
            "pays from call (first call)",
            "pays from call (process)",
        ),
        rows=tuple(rows),
    )


def _pays(line: _Line) -> Cell:
    if line.arm == EAGER:
        return Cell("")
    return Cell("never" if line.pays is None else f"{line.pays:,}")
