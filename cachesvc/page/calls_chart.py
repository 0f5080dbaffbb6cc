"""The chart of calls: how long each one took, and during which the compiler worked."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachesvc.core.bench import Trial
from cachesvc.core.measure import Arm, CallTime
from cachesvc.page.chart import Chart, NoChart
from cachesvc.page.drawing import draw, key, line_key, mark
from cachesvc.page.palette import arm_style
from cachesvc.page.table import Cell, Table
from cachesvc.page.wording import counted, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "Call by call"
_WIDE = 20.0
"""From this ratio of the slowest call to the quickest on, the axis is logarithmic."""
_SLOW = 3.0
"""How many times the median of equal calls a call takes to be marked though nothing was traced."""
_CROWDED = 60
"""From this number of calls on, lines carry no markers."""
_TOLD = 12
_MARKS = {"compiled": "*", "traced": "o", "slow": "x"}
_MEANING = {
    "compiled": "graphs compiled",
    "traced": "traced, from a cache",
    "slow": "slow, nothing traced",
}


@dataclass(frozen=True, slots=True)
class _Event:
    """A call that stands out, by the number that it has in its arm."""

    arm: str
    number: int
    call: CallTime
    kind: str

    def __str__(self) -> str:
        call = self.call
        what = {
            "compiled": f"{counted(call.compiled, 'graph')} compiled",
            "traced": f"{counted(call.traced, 'graph')} traced and taken from a cache",
            "slow": "slow, though nothing was traced",
        }[self.kind]
        why = f" because {call.reason}" if call.reason else ""
        return f"{self.arm}, call {self.number:,} ({seconds(call.seconds)}): {what}{why}"


def calls_chart(trial: Trial, name: str) -> Chart | NoChart:
    """A line for each arm, a point for each call."""
    arms = [arm for arm in trial.arms if arm.calls]
    if not arms:
        return NoChart(_TITLE, "no call was measured by itself")
    events = [event for arm in arms for event in _events(arm)]
    told = tuple(_told(events))
    description = " ".join(
        [
            "Lines, one for each arm: the seconds of each call in turn.",
            *(_range(arm) for arm in arms),
            *(f"{sentence}." for sentence in told),
        ]
    )

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        _axes(axes, [call.seconds for arm in arms for call in arm.calls])
        for arm in arms:
            _line(axes, arm)
        _marks(axes, events)
        _key(figure, arms, events)

    return Chart(
        name=name,
        title=_TITLE,
        description=description,
        svg=draw(name, _TITLE, description, 4.4, paint),
        numbers=_numbers(arms),
        remarks=told,
    )


def _events(arm: Arm) -> Iterator[_Event]:
    usual = _usual(arm)
    for number, call in enumerate(arm.calls, start=1):
        if call.compiled:
            yield _Event(arm.name, number, call, "compiled")
        elif call.traced:
            yield _Event(arm.name, number, call, "traced")
        elif call.seconds > _SLOW * usual[call.signature]:
            yield _Event(arm.name, number, call, "slow")


def _usual(arm: Arm) -> dict[str, float]:
    by_signature: dict[str, list[float]] = {}
    for call in arm.calls:
        by_signature.setdefault(call.signature, []).append(call.seconds)
    return {signature: statistics.median(each) for signature, each in by_signature.items()}


def _told(events: list[_Event]) -> Iterator[str]:
    """The first sentences; compiles before the rest, since they are what a cache can remove."""
    ordered = sorted(events, key=lambda event: event.kind != "compiled")
    yield from map(str, ordered[:_TOLD])
    if len(ordered) > _TOLD:
        yield f"{len(ordered) - _TOLD} more calls stand out: see the numbers"


def _range(arm: Arm) -> str:
    each = [call.seconds for call in arm.calls]
    return (
        f"{arm.name}: {counted(len(each), 'call')}, the first {seconds(each[0])},"
        f" the last {seconds(each[-1])}."
    )


def _axes(axes: Axes, values: list[float]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlabel("call, in order")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    wide = min(values) > 0 and max(values) > _WIDE * min(values)
    if wide:
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.set_ylim(0, max(values) * 1.15 or 1)
    axes.set_ylabel("seconds of the call (log scale)" if wide else "seconds of the call")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _line(axes: Axes, arm: Arm) -> None:
    look = arm_style(arm.name)
    axes.plot(
        range(1, len(arm.calls) + 1),
        [call.seconds for call in arm.calls],
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker if len(arm.calls) <= _CROWDED else "",
        markersize=4.5,
        linewidth=1.4,
    )


def _marks(axes: Axes, events: Iterable[_Event]) -> None:
    for event in events:
        axes.add_line(mark(_MARKS[event.kind], event.number, event.call.seconds))


def _key(figure: Figure, arms: Iterable[Arm], events: Iterable[_Event]) -> None:
    kinds = {event.kind for event in events}
    lines = [(arm.name, line_key(arm_style(arm.name))) for arm in arms]
    key(
        figure,
        [*lines, *((_MEANING[kind], mark(_MARKS[kind])) for kind in _MARKS if kind in kinds)],
    )


def _numbers(arms: list[Arm]) -> Table:
    longest = max(arms, key=lambda arm: len(arm.calls))
    rows = (
        (
            Cell(f"{at + 1:,}"),
            Cell(call.signature, words=True),
            *(_cell(arm.calls[at : at + 1]) for arm in arms),
        )
        for at, call in enumerate(longest.calls)
    )
    return Table(
        caption="Median seconds of each call; beneath, what the compiler did",
        header=("call", "signature", *(arm.name for arm in arms)),
        rows=tuple(rows),
    )


def _cell(found: tuple[CallTime, ...]) -> Cell:
    if not found:
        return Cell("")
    (call,) = found
    if not call.traced and not call.compiled:
        return Cell(seconds(call.seconds))
    note = f"{call.traced} traced, {call.compiled} compiled"
    return Cell(seconds(call.seconds), note=f"{note}: {call.reason}" if call.reason else note)
