"""Paths as a caller gives them."""

from __future__ import annotations

import os
from pathlib import Path

from cachesvc.core.errors import UsageError


def directory(path: str | os.PathLike[str]) -> Path:
    """An absolute path, links not followed: it is only a place to read from or write to.

    Raises UsageError for an empty one, as a variable that is not set leaves it, and for one that
    names nothing.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise UsageError(f"{text!r} names no directory or file")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # the home of a user who has none
        raise UsageError(f"{text}: {error}") from None
