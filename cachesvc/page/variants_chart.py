"""The chart of variants: what each way of compiling costs at the start, and gives afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachesvc.core.arms import COLD, EAGER
from cachesvc.core.bench import Trial
from cachesvc.core.measure import Spread
from cachesvc.page.chart import Chart
from cachesvc.page.drawing import across, bar_key, draw, headroom, label
from cachesvc.page.palette import INK, PAPER, arm_fill, arm_style
from cachesvc.page.table import Cell, Table, spread
from cachesvc.page.wording import seconds, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "The variants side by side"
_WARM = "warm"
_STARTS = (COLD, _WARM)
_HEIGHT = 0.36


@dataclass(frozen=True, slots=True)
class _Row:
    """One variant; None for what was not measured."""

    label: str
    first: dict[str, Spread]
    steady: Spread | None


def variants_chart(trials: tuple[Trial, ...], name: str) -> Chart:
    """Two drawings in one: the first call cold and warm, and a steady call."""
    rows = [_row(trial) for trial in trials]
    eager = next((arm.steady_s for trial in trials if (arm := trial.arm(EAGER))), None)
    description = _description(rows, eager)

    def paint(figure: Figure) -> None:
        starts, steady = figure.subplots(2, 1)
        _paint_starts(starts, rows)
        _paint_steady(steady, rows, eager)

    return Chart(
        name=name,
        title=_TITLE,
        description=description,
        svg=draw(name, _TITLE, description, 2.4 + 1.0 * len(rows), paint),
        numbers=_numbers(rows, eager),
        remarks=("Thin lines run from the least to the most of the samples",),
    )


def _row(trial: Trial) -> _Row:
    arms = {name: arm for name in _STARTS if (arm := trial.arm(name)) is not None}
    steady = (arms[name].steady_s for name in reversed(_STARTS) if name in arms)
    return _Row(
        label=trial.variant.label,
        first={name: arm.first_call_s for name, arm in arms.items()},
        steady=next(filter(None, steady), None),
    )


def _paint_starts(axes: Axes, rows: list[_Row]) -> None:
    for turn, name in enumerate(_STARTS):
        for place, row in enumerate(rows):
            if name in row.first:
                _bar(axes, place + (turn - 0.5) * _HEIGHT, row.first[name], name)
    keys = [bar_key(arm_fill(name)) for name in _STARTS]
    axes.legend(keys, _STARTS, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    _finish(
        axes, rows, "the first call", [max(s.samples) for row in rows for s in row.first.values()]
    )


def _paint_steady(axes: Axes, rows: list[_Row], eager: Spread | None) -> None:
    measured = [max(row.steady.samples) for row in rows if row.steady is not None]
    for place, row in enumerate(rows):
        if row.steady is not None:
            _bar(axes, place, row.steady, "compiled")
    if eager is not None:
        look = arm_style(EAGER)
        axes.axvline(eager.median, color=look.colour, linestyle=look.dash, label=EAGER, linewidth=2)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1))
        measured.append(eager.median)
    _finish(axes, rows, "a steady call, compiled", measured)


def _bar(axes: Axes, place: float, measured: Spread, name: str) -> None:
    look = arm_fill(name)
    middle = measured.median
    error = [[middle - min(measured.samples)], [max(measured.samples) - middle]]
    axes.barh(
        place,
        middle,
        height=_HEIGHT,
        color=look.colour,
        hatch=look.hatch,
        edgecolor=PAPER,
        linewidth=0.5,
        xerr=error if len(measured.samples) > 1 else None,
        error_kw={"ecolor": INK, "elinewidth": 1.2, "capsize": 3},
    )
    label(axes, max(measured.samples), place, seconds(middle))


def _finish(axes: Axes, rows: list[_Row], what: str, measured: list[float]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(what, fontsize=10, loc="left")
    axes.set_yticks(range(len(rows)), [shortened(row.label, 26) for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    most = max(measured, default=0.0)
    unit, scale = ("seconds", 1.0) if most >= 1 else ("milliseconds", 1e3)
    axes.set_xlabel(f"{unit} (median)")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * scale:g}"))
    across(axes)
    headroom(axes, most)


def _description(rows: list[_Row], eager: Spread | None) -> str:
    told = ["Bars, for each variant: the first call cold and warm, and a steady call, in seconds."]
    for row in rows:
        facts = [f"{name} {seconds(spread.median)}" for name, spread in row.first.items()]
        if row.steady is not None:
            facts.append(f"steady {seconds(row.steady.median)}")
        told.append(f"{row.label}: {', '.join(facts) or 'not measured'}.")
    if eager is not None:
        told.append(f"A steady eager call takes {seconds(eager.median)}.")
    return " ".join(told)


def _numbers(rows: list[_Row], eager: Spread | None) -> Table:
    told = [
        (Cell(row.label), *(spread(row.first.get(name)) for name in _STARTS), spread(row.steady))
        for row in rows
    ]
    if eager is not None:
        told.append((Cell(EAGER), Cell(""), Cell(""), spread(eager)))
    return Table(
        caption="First call and steady call of each variant",
        header=("variant", "first call cold", "first call warm", "steady call"),
        rows=tuple(told),
    )
