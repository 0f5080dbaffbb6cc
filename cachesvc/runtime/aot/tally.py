"""How calls of models were dispatched in this process."""

from __future__ import annotations

import os
import threading
from collections import Counter


class Tally:
    """Counts of calls: to a compiled function, or past all of them, by reason.

    A call that is made while torch traces, or by code that nobody armed, is in neither.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0
        self.reasons: Counter[str] = Counter()
        self.used: Counter[str] = Counter()

    def hit(self, unit: str) -> None:
        with self._lock:
            self.hits += 1
            self.used[unit] += 1

    def miss(self, reason: str) -> None:
        with self._lock:
            self.misses += 1
            self.reasons[reason] += 1

    def unlock(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self._lock = threading.Lock()


tally = Tally()
os.register_at_fork(after_in_child=tally.unlock)
