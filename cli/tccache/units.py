"""Flags whose value has a unit: a duration or a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

import cachesvc

T = TypeVar("T")


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """A flag's callback: seconds, from a text such as 30d or 12h."""
    return _read(cachesvc.read_duration, value)


def size_in_bytes(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A flag's callback: bytes, from a text such as 10GB or 1GiB."""
    return _read(cachesvc.read_size, value)


def _read(read: Callable[[str], T], value: str | None) -> T | None:
    try:
        return None if value is None else read(value)
    except cachesvc.UsageError as error:
        raise click.BadParameter(str(error)) from None
