"""A write to S3 that meets another one of the same name, and is begun again."""

from __future__ import annotations

import time
from collections.abc import Callable

from cachesvc.core.errors import StoreError

PAUSES = (0.1, 0.4, 1.6)
"""Seconds before a write is begun again for the first, the second and the last time."""


class ConflictError(StoreError):
    """Another write, or a delete, of the same name came between; the write has to be begun again.

    An upload in parts is gone with it: completing it again would not help. That is also how an
    upload looks that was completed before, by a request whose answer was lost.
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
