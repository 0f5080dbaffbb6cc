"""What the caller of a warm start asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from cachesvc.core.errors import UsageError
from cachesvc.core.tier import ANY, AUTO, Allowed, allowed

OnMiss = Literal["compile", "eager", "error"]

DEADLINE = "TCCACHE_DEADLINE"
TIER = "TCCACHE_TIER"
DEADLINE_S = 300.0
"""Seconds from the beginning of a start to the end of its seeding, unless the caller says."""


@dataclass(frozen=True, slots=True)
class Options:
    """See `warm_start`."""

    on_miss: OnMiss = "compile"
    deadline: float | None = None
    fallback: bool = True
    publish: bool = False
    check: bool = False
    tier: Allowed = ANY


def checked(
    on_miss: str,
    deadline: float | None,
    *,
    flags: tuple[bool, bool, bool],
    tier: str | None = None,
) -> Options:
    """The options; `flags` are fallback, publish and check. Raises UsageError."""
    if on_miss not in get_args(OnMiss):
        raise UsageError(f"on_miss is {on_miss!r}: say 'compile', 'eager' or 'error'")
    if deadline is not None:
        deadline_seconds(deadline)
    fallback, publish, check = flags
    tiers = chosen_tier(tier)
    return Options(on_miss, deadline, fallback, publish, check, tiers)  # type: ignore[arg-type]


def chosen_tier(given: str | None) -> Allowed:
    """The tiers to choose from: what was given, else TCCACHE_TIER, else all. Raises UsageError."""
    return allowed(given if given is not None else os.environ.get(TIER) or AUTO)


def deadline_seconds(given: float | None) -> float:
    """The deadline in seconds: what was given, else TCCACHE_DEADLINE, else five minutes.

    Raises UsageError for what is no positive number.
    """
    text = os.environ.get(DEADLINE) or DEADLINE_S if given is None else given
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"the deadline is {text!r}: give a positive number of seconds")
    return seconds


def seconds_if_any(given: float | None) -> float | None:
    """The deadline in seconds where one was given or TCCACHE_DEADLINE has one, else None.

    Raises as `deadline_seconds`.
    """
    if given is None and not os.environ.get(DEADLINE):
        return None
    return deadline_seconds(given)
