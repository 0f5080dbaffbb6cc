"""The chart of a bundle: what it holds, by section."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachesvc.core.bench import Composition, Trial
from cachesvc.page.chart import Chart, NoChart
from cachesvc.page.drawing import across, draw, headroom, label
from cachesvc.page.palette import PAPER
from cachesvc.page.table import Cell, Table
from cachesvc.page.wording import counted, shortened, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE = "What the bundle holds"
_COLOUR = "#009e73"


def bundle_chart(trial: Trial, name: str) -> Chart | NoChart:
    """A bar for each section, the greatest first."""
    bundle = trial.bundle
    if bundle is None or not bundle.sections:
        return NoChart(_TITLE, "no bundle was published")
    sections = sorted(bundle.sections.items(), key=lambda item: -item[1][2])
    description = _description(bundle, sections)

    def paint(figure: Figure) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        axes = figure.add_subplot()
        sizes = [held[2] for _, held in sections]
        axes.barh(range(len(sizes)), sizes, height=0.55, color=_COLOUR, edgecolor=PAPER)
        for row, (_, held) in enumerate(sections):
            label(axes, held[2], row, size(held[2]))
        axes.set_yticks(range(len(sizes)), [shortened(section, 20) for section, _ in sections])
        axes.set_xlabel("bytes as the compiler's files, before packing")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        across(axes)
        headroom(axes, max(sizes))

    return Chart(
        name=name,
        title=_TITLE,
        description=description,
        svg=draw(name, _TITLE, description, 1.1 + 0.45 * len(sections), paint),
        numbers=_numbers(sections),
        remarks=(f"{size(bundle.bytes)} in the store, packed: {bundle.address}",),
    )


Sections = list[tuple[str, tuple[int, int, int]]]


def _description(bundle: Composition, sections: Sections) -> str:
    told = [f"Bars, one for each section, in bytes. Packed, the bundle takes {size(bundle.bytes)}."]
    for section, (units, files, held) in sections:
        inside = f"{counted(files, 'file')} in {counted(units, 'unit')}"
        told.append(f"{section}: {size(held)}, {inside}.")
    return " ".join(told)


def _numbers(sections: Sections) -> Table:
    return Table(
        caption="Units, files and bytes of each section",
        header=("section", "units", "files", "bytes"),
        rows=tuple(
            (Cell(section), *(Cell(f"{number:,}") for number in held)) for section, held in sections
        ),
    )
