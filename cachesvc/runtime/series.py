"""A series: calls made again and again, each timed, with what the compiler did meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cachesvc.core.measure import CallTime
from cachesvc.runtime.calls import Call, timed
from cachesvc.runtime.counters import Meter
from cachesvc.runtime.incidents import IncidentMeter

LEAST_ROUNDS = 3
"""A second call, and two that are steady."""


def series(
    calls: Sequence[Call], triton: Path | None, *, rounds: int, enough_s: float
) -> Iterator[CallTime]:
    """Makes all calls in order, `rounds` times; fewer, but three, once `enough_s` have passed.

    Counting is not part of the seconds. What the caller has set for gradients holds.
    """
    started = time.monotonic()
    for number in range(max(rounds, LEAST_ROUNDS)):
        if number >= LEAST_ROUNDS and time.monotonic() - started > enough_s:
            return
        for call in calls:
            yield _made(call, triton)


def _made(call: Call, triton: Path | None) -> CallTime:
    meter, incidents = Meter(triton, hooked=False), IncidentMeter()
    _, seconds = timed(call)
    counts = meter.read()
    return CallTime(
        signature=call.signature,
        seconds=seconds,
        traced=counts.graphs,
        compiled=counts.compiled,
        reason=incidents.recompile_reason(),
    )
