"""Measuring starts: each sample in a fresh process, with directories of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.core.measure import Measurement, Sample, arms_of
from cachesvc.core.report import Verdict
from cachesvc.local.host import read_environment
from cachesvc.local.live import HOME, INDUCTOR, TRITON
from cachesvc.runtime.workloads import check_target
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.sample import SampleSpec, spec_text
from cachesvc.start.settings import open_repository

EXPECTED = {"eager": Verdict.EAGER, "cold": Verdict.COLD, "warm": Verdict.WARM}
"""The verdict that each arm must have: a label is checked, not believed."""

# The child must neither inherit a cache, nor a setting of this library, nor be switched off.
_CLEARED = (INDUCTOR, TRITON, "TCCACHE_STORE", "TCCACHE_TRUST", "TCCACHE_DISABLE")


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
    with tempfile.TemporaryDirectory(prefix="tccache-demo-") as folder:
        scratch = Path(folder)
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
            compiled=max(
                report["counts"]["graph_misses"] + report["counts"]["graph_bypasses"],
                report["counts"]["generated"],
            ),
            native_builds=report["counts"]["native_builds"],
            difference=outcome["difference"],
            summary=outcome["summary"],
        )


def run_sample(spec: SampleSpec, home: Path) -> dict[str, Any]:
    """The outcome of one fresh process that has `home` for its directories.

    Raises TccacheError with the end of the process's own words if it fails.
    """
    spec_file, result_file = home / "spec.json", home / "result.json"
    spec_file.write_text(spec_text(replace(spec, spawned=time.monotonic())))
    command = [sys.executable, "-m", "cachesvc.start.sample", str(spec_file), str(result_file)]
    done = subprocess.run(
        command,
        env=_environment(home, cold=spec.arm == "cold"),
        cwd=home if spec.target.startswith("demo:") else None,
        capture_output=True,
        text=True,
        check=False,
    )
    outcome = json.loads(result_file.read_text()) if result_file.exists() else {}
    if done.returncode or "report" not in outcome:
        reason = outcome.get("error") or done.stderr.strip()[-2000:] or f"exit {done.returncode}"
        raise TccacheError(f"the {spec.arm} start of {spec.target} failed: {reason}")
    return dict(outcome)


def _environment(home: Path, *, cold: bool) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    kept[HOME] = str(home / "home")
    if cold:
        kept[INDUCTOR] = str(home / "inductor")
        kept[TRITON] = str(home / "triton")
    return kept
