"""Measuring starts: each sample in a fresh process, with directories of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.core.measure import Measurement, Sample, arms_of
from cachesvc.core.report import Verdict
from cachesvc.local.host import read_environment
from cachesvc.runtime.workloads import check_target
from cachesvc.start.process import run_sample, workplace
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.sample import SampleSpec
from cachesvc.start.settings import open_repository

EXPECTED = {"eager": Verdict.EAGER, "cold": Verdict.COLD, "warm": Verdict.WARM}
"""The verdict that each arm must have: a label is checked, not believed."""


def demo(
    target: str = "demo:gpt",
    *,
    runs: int = 1,
    store: str | os.PathLike[str] | None = None,
    trust: str | None = None,
    progress: Progress = quiet,
) -> Measurement:
    """Cold start, publication, warm start: the whole product on one workload.

    Every sample is a fresh process; the arms take turns. Cold means an empty live directory; warm
    starts in another empty one, from another working directory, after a pull. Without a store a
    temporary local one is used. Raises TccacheError if an arm is not what its label says.
    """
    check_target(target)
    with workplace("tccache-demo-") as scratch:
        place = str(store) if store is not None else str(scratch / "store")
        open_repository(place, trust)
        bench = _Bench(target, place, trust, scratch, progress)
        samples = tuple(bench.samples(runs))
    return Measurement(
        workload=target,
        runs=runs,
        arms=arms_of(samples),
        store="a temporary local store" if store is None else place,
        pack_bytes=bench.pack_bytes,
        environment=read_environment().digest,
    )


@dataclass
class _Bench:
    """Runs samples one after the other."""

    target: str
    store: str
    trust: str | None
    scratch: Path
    progress: Progress
    pack_bytes: int = 0

    def samples(self, runs: int) -> Iterator[Sample]:
        for run in range(runs):
            for arm in EXPECTED:
                self.progress(f"run {run + 1} of {runs}: {arm}")
                yield self._checked(arm, self._outcome(arm, run))

    def _outcome(self, arm: str, run: int) -> dict[str, Any]:
        home = self.scratch / f"{arm}-{run}"
        home.mkdir()
        spec = SampleSpec(
            arm=arm,
            target=self.target,
            spawned=0.0,
            reference=str(self.scratch / f"eager-{run}.pt"),
            store=self.store,
            trust=self.trust,
            publish=arm == "cold" and run == 0,
        )
        outcome = run_sample(spec, home)
        self.pack_bytes = outcome.get("published", {}).get("pack_bytes") or self.pack_bytes
        return outcome

    def _checked(self, arm: str, outcome: dict[str, Any]) -> Sample:
        report = outcome["report"]
        if report["verdict"] != EXPECTED[arm].value:
            raise TccacheError(
                f"the {arm} arm turned out {report['verdict']}, so its seconds would carry a wrong"
                f" label: {outcome['summary']}"
            )
        return Sample(
            arm=arm,
            verdict=Verdict(report["verdict"]),
            first_call_s=outcome["first_call_s"],
            startup_s=outcome["startup_s"],
            stages=tuple((name, seconds) for name, seconds in outcome["stages"]),
            compiled=outcome["compiled"],
            native_builds=report["counts"]["native_builds"],
            difference=outcome["difference"],
            summary=outcome["summary"],
        )
