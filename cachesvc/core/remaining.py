"""How long what is left may take, from what has been done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Step = tuple[str, str]
"""A variant and an arm."""


@dataclass
class Remaining:
    """Learns the seconds of steps, and guesses those of the steps to come."""

    _done: dict[Step, list[float]] = field(default_factory=dict)

    def done(self, step: Step, seconds: float) -> None:
        """Notes what a step has taken."""
        self._done.setdefault(step, []).append(seconds)

    def seconds(self, left: Iterable[Step]) -> float | None:
        """A guess for all steps that are left; None while nothing is known."""
        if not self._done:
            return None
        return sum(map(self._guess, left))

    def _guess(self, step: Step) -> float:
        same_arm = [s for (_, arm), each in self._done.items() if arm == step[1] for s in each]
        everything = [s for each in self._done.values() for s in each]
        return _mean(self._done.get(step) or same_arm or everything)


def _mean(seconds: Sequence[float]) -> float:
    return statistics.fmean(seconds)


def told(seconds: float) -> str:
    """A length of time for people: `40 s`, `5 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
