"""What a verb prints: its result on stdout, as text or JSON; progress and warnings on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from cachesvc import TccacheError, spelled

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Output:
    """How this run of a verb speaks."""

    verb: str
    json: bool
    quiet: bool
    verbose: bool

    def result(self, fields: dict[str, Any], lines: Iterable[str]) -> None:
        """Prints the result: one JSON object with the verb's schema, or the lines."""
        if self.json:
            text = json.dumps({"schema": f"tccache.{self.verb}/1", **fields}, indent=2)
        else:
            text = "\n".join(printable(line).replace("\n", "\\n") for line in lines)
        if text:
            _say(text)

    def code(self, fields: dict[str, Any], text: str) -> None:
        """Prints the result as JSON, or code: line ends and tabs stay, no other control does."""
        if self.json:
            self.result(fields, ())
        else:
            _say("\t".join(map(printable, text.rstrip("\n").split("\t"))))

    def warn(self, messages: Iterable[str]) -> None:
        """Says what the user should know though the verb succeeded."""
        for message in messages:
            click.echo(printable(f"warning: {message}"), err=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A function that shows the step at work: a line each if verbose, else on a terminal."""
        if self.verbose:
            yield lambda step: click.echo(printable(step), err=True)
        elif self.quiet or not sys.stderr.isatty():
            yield lambda step: None
        else:
            from rich.console import Console
            from rich.text import Text

            with Console(stderr=True).status("") as status:
                yield lambda step: status.update(Text(printable(step)))


def _say(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TccacheError(
            f"cannot write the result to standard output: {error.strerror}; what it tells was done"
        ) from error


def printable(text: str) -> str:
    """The text with all but line ends spelled out that could steer a terminal, such as a store's
    tags."""
    return "\n".join(map(spelled, text.split("\n")))


def counted(number: int, noun: str) -> str:
    """`1 unit`, `2 units`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} B"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell, a line each; the last one is left ragged."""
    cells = [tuple(header), *map(tuple, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
