"""Progress: what a caller may watch while a verb works."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]


def quiet(_: str) -> None:
    """Progress that nobody watches."""
