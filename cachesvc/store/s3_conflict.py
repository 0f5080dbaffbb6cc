"""A write to S3 that meets another one of the same name, and is begun again."""

from __future__ import annotations

import time
from collections.abc import Callable

from cachesvc.core.errors import StoreError

PAUSES = (0.1, 0.4, 1.6)
"""Seconds before a write is begun again for the first, the second and the last time."""


class ConflictError(StoreError):
    """Another write, or a delete, of the same name came between; nothing was written.

    An upload in parts is gone with it, so it has to be begun again, not only completed again.
    """


def persist(write: Callable[[], None]) -> None:
    """Calls `write` until it does not raise ConflictError, four times at most."""
    for pause in PAUSES:
        try:
            write()
            return
        except ConflictError:
            time.sleep(pause)
    write()
