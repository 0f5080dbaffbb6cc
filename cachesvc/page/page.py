"""The page of a bench: one HTML file that needs nothing else, not even a network.

It holds no script, and its policy lets a browser fetch nothing.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachesvc.core.bench import Bench, Trial
from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.page.arms_table import arms_table, samples_table
from cachesvc.page.break_even_chart import break_even_chart
from cachesvc.page.bundle_chart import bundle_chart
from cachesvc.page.calls_chart import calls_chart
from cachesvc.page.chart import Chart, NoChart
from cachesvc.page.stages_chart import stages_chart
from cachesvc.page.summary import sentences, troubles
from cachesvc.page.table import Table
from cachesvc.page.variants_chart import variants_chart
from cachesvc.page.wording import moment, plain

if TYPE_CHECKING:
    from jinja2 import Environment

_NEEDED = ("jinja2", "matplotlib.figure")


@dataclass(frozen=True, slots=True)
class _Part:
    """What the page says of one variant."""

    label: str
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    arms: Table | None
    charts: tuple[Chart, ...]
    missing: tuple[NoChart, ...]


def write_page(bench: Bench, path: str | os.PathLike[str]) -> None:
    """Writes the page of a bench to a file, whole or not at all, in place of what was there.

    Raises UsageError if the libraries that it takes are not installed, TccacheError if the file
    cannot be written.
    """
    text, target = page_text(bench), Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise TccacheError(
            f"cannot write the page to {os.fspath(path)}: {error.strerror}; name a file in a folder"
            " that exists and that you may write to"
        ) from error


def check_page(path: str | os.PathLike[str]) -> None:
    """Raises UsageError where `write_page` could not succeed, to be known before a long bench."""
    _check_libraries()
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} for the page: make it, or name another file")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written to: name a file in another folder")
    if Path(path).is_dir():
        raise UsageError(f"{os.fspath(path)} is a folder: name the file that the page is to be")


def page_text(bench: Bench) -> str:
    """The page of a bench as HTML; the same bench gives the same text.

    Raises UsageError if the libraries that it takes are not installed.
    """
    _check_libraries()
    trials = [trial for trial in bench.trials if trial.arms]
    many = len(trials) > 1
    return (
        _environment()
        .get_template("page.html")
        .render(
            bench=bench,
            measured=moment(bench.created),
            troubles=troubles(bench),
            overview=variants_chart(tuple(trials), "variants") if many else None,
            parts=[_part(bench, trial, number) for number, trial in enumerate(trials, start=1)],
            samples=samples_table(bench),
        )
    )


def _check_libraries() -> None:
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UsageError(
                f"a page takes {name}, which cannot be imported ({error}):"
                " pip install 'tccache[report]'"
            ) from error


def _part(bench: Bench, trial: Trial, number: int) -> _Part:
    charts = tuple(_charts(trial, f"variant{number}"))
    return _Part(
        label=trial.variant.label,
        sentences=sentences(bench, trial),
        notes=trial.notes,
        arms=arms_table(bench, trial),
        charts=tuple(chart for chart in charts if isinstance(chart, Chart)),
        missing=tuple(chart for chart in charts if isinstance(chart, NoChart)),
    )


def _charts(trial: Trial, name: str) -> Iterator[Chart | NoChart]:
    yield stages_chart(trial, f"{name}-stages")
    yield calls_chart(trial, f"{name}-calls")
    yield break_even_chart(trial, f"{name}-break-even")
    yield bundle_chart(trial, f"{name}-bundle")


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("cachesvc.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )


def _finalize(value: Any) -> Any:
    """What the page prints: text without what HTML may not hold; escaping comes after."""
    return plain(value) if type(value) is str else value
