"""A table of the page, as values."""

from __future__ import annotations

from dataclasses import dataclass

from cachesvc.core.measure import Spread
from cachesvc.page.wording import seconds

NOT_MEASURED = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table; `note` stands smaller beneath, `words` are no figure."""

    text: str
    note: str = ""
    words: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The first cell of each row names it."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def duration(value: float | None) -> Cell:
    """Seconds in a cell, or that they were not measured."""
    return Cell(NOT_MEASURED if value is None else seconds(value))


def spread(measured: Spread | None) -> Cell:
    """The median, with the least and the most beneath."""
    if measured is None:
        return Cell(NOT_MEASURED)
    if len(measured.samples) == 1:
        return duration(measured.median)
    least, most = min(measured.samples), max(measured.samples)
    return Cell(seconds(measured.median), f"{seconds(least)} to {seconds(most)}")
