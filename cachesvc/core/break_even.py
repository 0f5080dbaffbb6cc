"""The break-even call: from which call on compiling has paid."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What calls take, in seconds: the first ones one by one, each further one `steady`."""

    head: tuple[float, ...]
    steady: float

    def total(self, calls: int) -> float:
        """Seconds of the first `calls` calls together."""
        return math.fsum(self.head[:calls]) + self.steady * max(0, calls - len(self.head))


def break_even(compiled: Cost, eager: Cost) -> int | None:
    """The least number of calls from which on the compiled ones have taken less time in total.

    From there on it stays so, however many calls follow. None if that never happens.
    """
    settled = max(len(compiled.head), len(eager.head))
    behind = compiled.total(settled) - eager.total(settled)
    gain = eager.steady - compiled.steady
    if gain < 0 or (gain == 0 and behind >= 0):
        return None
    if behind >= 0:
        return settled + math.floor(behind / gain) + 1
    while settled > 1 and compiled.total(settled - 1) < eager.total(settled - 1):
        settled -= 1
    return max(1, settled)
