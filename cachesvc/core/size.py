"""Sizes as people write them."""

from __future__ import annotations

import re

from cachesvc.core.errors import UsageError

_FORM = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s?([kKMGT]?i?B)", re.ASCII)
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def read_size(text: str) -> int:
    """The bytes that a text such as `500MB` (of 1000 kB each) or `1GiB` (of 1024 MiB) stands for.

    Raises UsageError for any other: a number alone could mean any unit.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or match[2] == "iB":
        raise UsageError(f"{text!r:.80} is no size: write 500MB, 10GB or 1GiB")
    prefix = match[2].removesuffix("B")
    base = 1024 if prefix.endswith("i") else 1000
    return int(float(match[1]) * base ** _POWERS[prefix.removesuffix("i")])
