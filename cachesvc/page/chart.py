"""A chart of the page: the drawing, the words that stand for it, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from cachesvc.page.table import Table


@dataclass(frozen=True, slots=True)
class Chart:
    """`name` is unique in its page; `description` tells what the drawing `svg` shows.

    `remarks` are what a reader should see beside the drawing, a sentence each.
    """

    name: str
    title: str
    description: str
    svg: str
    numbers: Table
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoChart:
    """What stands where a chart cannot be drawn: why not."""

    title: str
    reason: str
