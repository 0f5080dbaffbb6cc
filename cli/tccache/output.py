"""What a verb prints: its result on stdout, as text or JSON; progress and warnings on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Output:
    """How this run of a verb speaks."""

    verb: str
    json: bool
    quiet: bool
    verbose: bool

    def result(self, fields: dict[str, Any], text: str) -> None:
        """Prints the result: one JSON object with the verb's schema, or the text."""
        if self.json:
            click.echo(json.dumps({"schema": f"tccache.{self.verb}/1", **fields}, indent=2))
        elif text:
            click.echo(text)

    def warn(self, messages: Iterable[str]) -> None:
        """Says what the user should know though the verb succeeded."""
        for message in messages:
            click.echo(f"warning: {message}", err=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A function that shows the step at work: a line each if verbose, else on a terminal."""
        if self.verbose:
            yield lambda step: click.echo(step, err=True)
        elif self.quiet or not sys.stderr.isatty():
            yield lambda step: None
        else:
            from rich.console import Console

            with Console(stderr=True).status("") as status:
                yield status.update


def common(verb: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds --json, --quiet and --verbose, and gives the verb an `Output`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(json: bool, quiet: bool, verbose: bool, **options: Any) -> Any:
            return function(out=Output(verb, json, quiet, verbose), **options)

        run.__doc__ = function.__doc__
        run.__name__ = verb
        run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        for option in (
            click.option("--verbose", "-v", is_flag=True, help="Say each step on stderr."),
            click.option("--quiet", "-q", is_flag=True, help="No progress."),
            click.option("--json", is_flag=True, help="Print one JSON object."),
        ):
            run = option(run)
        return run

    return decorate


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --store and --trust."""
    trust = click.option(
        "--trust",
        metavar="WORD",
        envvar="TCCACHE_TRUST",
        help="`store`: trust whoever can write to a remote store. A pull runs the pusher's code.",
    )
    store = click.option(
        "--store",
        metavar="URL",
        envvar="TCCACHE_STORE",
        help="Where bundles are: a directory, s3://BUCKET/PREFIX, or another fsspec URL.",
    )
    return store(trust(function))


def tree_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name cache directories and files."""
    for option in (
        click.option(
            "--environment",
            metavar="ENV",
            help="Another machine's fingerprint: the file that `tccache env --json` wrote there"
            " (for lookup and pull also the first digits of its digest).",
        ),
        click.option(
            "--extra",
            multiple=True,
            metavar="NAME=DIR",
            callback=_pairs,
            help="Another program's cache directory, under a name of your choice. Repeatable.",
        ),
        click.option("--mega", metavar="FILE", help="A mega-cache file."),
        click.option("--triton-dir", metavar="DIR", help="Triton's cache directory."),
        click.option("--inductor-dir", metavar="DIR", help="Inductor's cache directory."),
        click.option("--label", metavar="NAME", help="Another name for the bundle than MODEL."),
    ):
        function = option(function)
    return function


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    split = [value.partition("=") for value in values]
    for value, (name, _equals, folder) in zip(values, split, strict=True):
        if not (name and folder):
            raise click.BadParameter(f"{value!r} is not NAME=DIR")
    return {name: folder for name, _equals, folder in split}


def size(number: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} B"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the last one is left ragged."""
    cells = [tuple(header), *map(tuple, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "\n".join(lines)
