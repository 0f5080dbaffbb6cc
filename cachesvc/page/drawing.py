"""Drawings: matplotlib's SVG made part of a page.

Nothing global is touched for longer than one drawing takes: no pyplot, no settings of the caller.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from cachesvc.page.palette import GRID, INK, PAPER, ArmStyle, FillStyle
from cachesvc.page.wording import plain, shortened

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

BACKING = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.75, "pad": 1}
"""Behind words that a line may cross."""

_WIDTH = 6.0
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_DROPPED = (f"{_SVG}metadata", f"{_SVG}style")
_OF_THE_PAGE = {INK: "currentColor", GRID: "var(--line)", PAPER: "var(--paper)"}
_FONT = re.compile(r"(font-family: |font: (?:\w+ )*[\d.]+px )[^;]*")
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tccache",
    "text.parse_math": False,
    "text.color": INK,
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "hatch.linewidth": 0.9,
}


def draw(
    name: str, title: str, description: str, height: float, paint: Callable[[Figure], None]
) -> str:
    """An `svg` element that fills the width of its place; `height` in inches of six in width.

    `name` MUST be unique in the page: identifiers inside begin with it. Title and description are
    its text alternative. The same input gives the same text.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    written = io.StringIO()
    with style.context(["default", _SETTINGS]), warnings.catch_warnings():
        # The browser has more letters than the font that matplotlib measures with.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        paint(figure)
        figure.savefig(written, format="svg", metadata={"Date": None})
    return _part_of_page(written.getvalue(), name, plain(title), plain(description))


def key(figure: Figure, entries: Sequence[tuple[str, Artist]]) -> None:
    """The legend, beneath the drawing."""
    names = [shortened(name, 32) for name, _ in entries]
    figure.legend([look for _, look in entries], names, loc="outside lower left", ncols=3)


def line_key(look: ArmStyle) -> Artist:
    """A piece of a line, for the legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=look.colour, linestyle=look.dash, marker=look.marker)


def bar_key(look: FillStyle) -> Artist:
    """A piece of a bar, for the legend."""
    from matplotlib.patches import Patch

    return Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=PAPER)


def mark(shape: str, *at: float) -> Line2D:
    """A sign around a point; without a place, for the legend."""
    from matplotlib.lines import Line2D

    return Line2D(
        at[:1],
        at[1:],
        linestyle="",
        marker=shape,
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=INK,
    )


def headroom(axes: Axes, most: float) -> None:
    """Room at the right of the longest bar for its label."""
    axes.set_xlim(0, most * 1.3 if most > 0 else 1)


def label(axes: Axes, right: float, row: float, text: str) -> None:
    """Words beside the right end of a bar."""
    axes.annotate(
        text, (right, row), xytext=(5, 0), textcoords="offset points", va="center", bbox=BACKING
    )


def across(axes: Axes) -> None:
    """An axes of horizontal bars: named rows from the top, a grid of upright lines."""
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _part_of_page(text: str, name: str, title: str, description: str) -> str:
    root = ElementTree.fromstring(text)  # noqa: S314 - what matplotlib has just written
    for parent in root.iter():
        for child in [child for child in parent if child.tag in _DROPPED]:
            parent.remove(child)
    for element in root.iter():
        _rename(element, name)
    _describe(root, name, title, description)
    return ElementTree.tostring(root, encoding="unicode")


def _rename(element: ElementTree.Element, name: str) -> None:
    """As HTML writes it: without namespaces, with identifiers of the page and its colours."""
    element.tag = element.tag.removeprefix(_SVG)
    for key, value in tuple(element.attrib.items()):
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key == _LINK:
            element.set("href", f"#{name}-{element.attrib.pop(key)[1:]}")
        else:
            element.set(key, _styled(value.replace("url(#", f"url(#{name}-")))


def _styled(value: str) -> str:
    for colour, own in _OF_THE_PAGE.items():
        value = value.replace(colour, own)
    return _FONT.sub(r"\1var(--font)", value)


def _describe(root: ElementTree.Element, name: str, title: str, description: str) -> None:
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("class", "drawing")
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        told = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        told.text = words
        root.insert(place, told)
