"""The question before anything is deleted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

import cachesvc
from tccache.output import printable


def deletion_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --dry-run and --yes."""
    for option in (
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Say what would be deleted, delete nothing."),
    ):
        option(function)
    return function


def require_terminal() -> None:
    """Raises UsageError if nobody could answer."""
    if not sys.stdin.isatty():
        raise cachesvc.UsageError(
            "there is no terminal to ask at: give --yes, or --dry-run to see what would be deleted"
        )


def ask(lines: Iterable[str], what: str) -> None:
    """Returns if somebody at the terminal agrees to the deletion of `what`."""
    for line in lines:
        click.echo(printable(line), err=True)
    if not click.confirm(f"Delete {what}?", err=True):
        raise cachesvc.TccacheError("nothing was deleted: the answer was no")
