"""Durations as people write them."""

from __future__ import annotations

import re

from cachesvc.core.errors import UsageError

_FORM = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s?(s|m|h|d|w)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def read_duration(text: str) -> float:
    """The seconds that a text such as `90s`, `15m`, `12h`, `30d` or `2w` stands for.

    Raises UsageError for any other: a number alone could mean any unit.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r:.80} is no duration: write 90s, 15m, 12h, 30d or 2w")
    return float(match[1]) * _SECONDS[match[2]]
