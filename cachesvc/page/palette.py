"""How arms and stages look: by colour, and by marker or hatch for those who see no colours.

The colours are Okabe and Ito's, or of their lightness, and stand out on light and on dark paper.
INK, GRID and PAPER take the colours of the page when a drawing becomes part of it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

INK = "#111112"
GRID = "#cccccd"
PAPER = "#fefeff"
OTHER = "other"

Dash = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """A line of an arm."""

    colour: str
    marker: str
    dash: Dash


@dataclass(frozen=True, slots=True)
class FillStyle:
    """A bar of an arm or of a stage."""

    colour: str
    hatch: str


_ARMS = {
    "eager": ArmStyle("#7f7f7f", "o", ":"),
    "cold": ArmStyle("#0072b2", "s", "-"),
    "warm": ArmStyle("#d55e00", "^", "-"),
    "local": ArmStyle("#009e73", "D", "--"),
    "megacache": ArmStyle("#cc79a7", "v", "-."),
    "aot": ArmStyle("#b38600", "P", "--"),
}
_MORE_ARMS = (ArmStyle("#8a6fb0", "X", ":"), ArmStyle("#4d4d4d", "p", "-."))

_STAGES = {
    "interpreter": FillStyle("#b0b0b0", ""),
    "import torch": FillStyle("#7f7f7f", ""),
    "import compiler": FillStyle("#7f7f7f", "////"),
    "build model": FillStyle("#56b4e9", ""),
    "identify": FillStyle("#b38600", ""),
    "look up": FillStyle("#b38600", "||||"),
    "pull": FillStyle("#009e73", ""),
    "seed": FillStyle("#009e73", "xxxx"),
    "load": FillStyle("#cc79a7", "\\\\\\\\"),
    "first call": FillStyle("#0072b2", ""),
    OTHER: FillStyle(GRID, ""),
}
_MORE_STAGES = (
    FillStyle("#8a6fb0", "++++"),
    FillStyle("#5a8f29", "||||"),
    FillStyle("#a0522d", "----"),
)
_BARS = {"cold": "", "warm": "////"}


def arm_style(name: str) -> ArmStyle:
    """The same for the same name in every chart and page."""
    return _ARMS.get(name) or _MORE_ARMS[_number(name) % len(_MORE_ARMS)]


def stage_style(name: str) -> FillStyle:
    """The same for the same name in every chart and page."""
    return _STAGES.get(name) or _MORE_STAGES[_number(name) % len(_MORE_STAGES)]


def arm_fill(name: str) -> FillStyle:
    """A bar in the colour of the arm's line."""
    return FillStyle(arm_style(name).colour, _BARS.get(name, "\\\\\\\\"))


def _number(name: str) -> int:
    return zlib.crc32(name.encode(errors="replace"))
