"""Whether this thread wants models as they were written, not as they were compiled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Here(threading.local):
    """How many times this thread has entered `paused`."""

    depth: int = 0


_here = _Here()


@contextmanager
def paused() -> Iterator[None]:
    """Within, no call of this thread is dispatched to a function compiled ahead of time."""
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def is_paused() -> bool:
    """Whether this thread is inside `paused`."""
    return _here.depth > 0
