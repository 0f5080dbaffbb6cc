"""Timing of whole processes, pair by pair, so that a drift of the machine cancels out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from cachesvc import Spread


class Figures(Spread):
    """Seconds of several runs, shown to the millisecond."""

    def __str__(self) -> str:
        return f"{self.median:.3f} ({min(self.samples):.3f} to {max(self.samples):.3f})"


def wall_s(command: Sequence[str], environ: Mapping[str, str] | None = None) -> float:
    """Seconds of one process from start to exit; ends the benchmark if it fails.

    What processes before it have left unwritten in memory goes to the disk first, so that no one
    pays for another's bytes.
    """
    os.sync()
    started = time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return seconds


def in_turn(runs: int, *arms: Callable[[int], float]) -> tuple[Figures, ...]:
    """The arms in turn, `runs` times; each arm is given the number of its run."""
    rounds = [[arm(run) for arm in arms] for run in range(runs)]
    return tuple(Figures(tuple(samples)) for samples in zip(*rounds, strict=True))


def ratio(slow: Figures, fast: Figures) -> Figures:
    """How many times longer, pair by pair."""
    return Figures(tuple(a / b for a, b in zip(slow.samples, fast.samples, strict=True)))
