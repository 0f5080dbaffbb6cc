"""The demo: the whole product on one workload, measured."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cachesvc.core.errors import TccacheError
from cachesvc.core.measure import Measurement, Sample, arms_of
from cachesvc.local.host import read_environment
from cachesvc.runtime.workloads import check_target
from cachesvc.start.access import PRIVATE, TrustLike, access
from cachesvc.start.process import workplace
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.publishing import require_key
from cachesvc.start.sampler import Sampler
from cachesvc.start.settings import open_repository

_ARMS = ("eager", "cold", "warm")
_AHEAD = "aot"


def demo(
    target: str = "demo:gpt",
    *,
    runs: int = 1,
    store: str | os.PathLike[str] | None = None,
    trust: TrustLike | None = None,
    progress: Progress = quiet,
) -> Measurement:
    """Cold start, publication, warm start: the whole product on one workload.

    Every sample is a fresh process; the arms take turns. Cold means an empty live directory; warm
    starts in another empty one, from another working directory, after a pull; aot does so from
    functions compiled ahead of time, where torch can make them, and is left out elsewhere. Without
    a store a temporary local one is used. Raises TccacheError if an arm is not what its label says.
    """
    check_target(target)
    with workplace("demo") as scratch:
        place = str(store) if store is not None else str(scratch / "store")
        said = PRIVATE if store is None else access(trust)
        opened = open_repository(place, said, signs=True)
        require_key(opened)
        sampler = Sampler(target, place, said, scratch)
        samples = tuple(_samples(sampler, runs, progress))
        (published,) = sampler.published.values()
    return Measurement(
        workload=target,
        runs=runs,
        arms=arms_of(samples),
        store="a temporary local store" if store is None else place,
        pack_bytes=published["pack_bytes"],
        environment=read_environment().digest,
    )


def _samples(sampler: Sampler, runs: int, progress: Progress) -> Iterator[Sample]:
    ahead = True
    for run in range(runs):
        for arm in _ARMS:
            progress(f"run {run + 1} of {runs}: {arm}")
            yield sampler.sample(arm, run)
        if ahead:
            progress(f"run {run + 1} of {runs}: {_AHEAD}")
            try:
                yield sampler.sample(_AHEAD, run)
            except TccacheError as error:
                progress(f"not ahead of time: {error}")
                ahead = False
