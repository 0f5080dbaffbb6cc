"""The question before anything is deleted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.core import ParameterSource

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


def refuse_of_stores(names: Iterable[str]) -> None:
    """Raises UsageError if one of these flags was given to a verb that is to look at no store.

    Their environment variables say what holds where there is a store, and are passed over.
    """
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise cachesvc.UsageError(
                f"{flag} is about stores, and --live about no store: drop one"
            )


def ask(lines: Iterable[str], deed: str) -> None:
    """Returns if somebody at the terminal agrees to the deed, such as `Delete 2 objects`."""
    for line in lines:
        click.echo(printable(line), err=True)
    if not click.confirm(f"{deed}?", err=True):
        raise cachesvc.TccacheError("nothing was done: the answer was no")
