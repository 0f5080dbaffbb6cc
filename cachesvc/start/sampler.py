"""Samples of arms: each a fresh process with directories of its own, each label checked."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.core.measure import CallTime, Sample
from cachesvc.core.report import Verdict
from cachesvc.core.variant import Variant
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.local.host import read_environment
from cachesvc.start.access import PRIVATE, Access
from cachesvc.start.captured import captured, goal_of, publish_captured
from cachesvc.start.process import run_sample
from cachesvc.start.sample import SampleSpec

EXPECTED: Mapping[str, frozenset[Verdict]] = {
    "eager": frozenset({Verdict.EAGER}),
    # A model of several equal graphs finds its own entries, from an empty directory.
    "cold": frozenset({Verdict.COLD, Verdict.PARTIAL}),
    "warm": frozenset({Verdict.WARM}),
    # By itself torch preprocesses a C++ header at each start, wherever a CPU kernel is loaded.
    "local": frozenset({Verdict.WARM, Verdict.PARTIAL}),
    # A mega-cache holds no compiled C++: on a CPU that is built again.
    "megacache": frozenset({Verdict.WARM, Verdict.PARTIAL}),
    "aot": frozenset({Verdict.WARM}),
}
"""The verdicts that each arm may have: a label is checked, not believed.

eager: nothing is compiled. cold: from an empty directory. warm: from an empty directory and a
pull, at another path. local: from the directory that a cold start has filled, without this
library; no graph is compiled. megacache: from an empty directory and torch's own mega-cache.
aot: from an empty directory and functions compiled ahead of time; no call goes past them.
"""


@dataclass
class Sampler:
    """Makes samples of one workload, in a folder for scratch.

    The cold arm comes before those that need what it leaves: its first sample publishes, each of
    them leaves its directories for the local arm and its mega-cache. Before the first sample of the
    aot arm the calls are captured as functions, in one more process; these are published nowhere
    but in the folder for scratch, as nothing has verified them yet. `outcome` is what the process
    of the last sample told, `reference` the last run whose eager outputs the others are compared
    with.
    """

    target: str
    store: str
    access: Access
    scratch: Path
    options: WorkloadOptions = WorkloadOptions()
    rounds: int = 3
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)
    reference: int = 0
    _captured: set[str] = field(default_factory=set)

    def sample(self, arm: str, run: int, variant: Variant = Variant()) -> Sample:
        """One sample. Raises what `run_sample` raises, TccacheError for a label that is wrong."""
        home = self._home(arm, run, variant)
        home.mkdir(parents=True)
        caches = self._home("cold", run, variant) if arm == "local" else None
        if arm == "aot":
            self._capture(run, variant)
        try:
            self.outcome = run_sample(self._spec(arm, run, variant), home, caches=caches)
        finally:
            if arm != "cold":
                shutil.rmtree(home, ignore_errors=True)
        if arm == "eager":
            self.reference = run
        if "published" in self.outcome:
            self.published[variant.label] = self.outcome["published"]
        return _checked(arm, self.outcome)

    def _capture(self, run: int, variant: Variant) -> None:
        """Captures and publishes the functions of a variant, once. Raises TccacheError where there
        are none."""
        if variant.label in self._captured:
            return
        home = self._home("capture", run, variant)
        shutil.copytree(self._home("cold", run, variant), home)
        spec = replace(self._spec("capture", run, variant), functions=str(home / "functions"))
        outcome = run_sample(spec, home, caches=home)
        found = captured(home / "functions", outcome)
        if not found.units:
            raise TccacheError(f"nothing was captured: {'; '.join(found.reasons)}")
        publish_captured(self._functions, goal_of(outcome, read_environment()), found)
        shutil.rmtree(home, ignore_errors=True)
        self._captured.add(variant.label)

    @property
    def _functions(self) -> Path:
        return self.scratch / "functions"

    def clear(self, run: int, variant: Variant) -> None:
        """Drops what a cold sample has left for others."""
        shutil.rmtree(self._home("cold", run, variant), ignore_errors=True)

    def _home(self, arm: str, run: int, variant: Variant) -> Path:
        return self.scratch / f"{arm}-{run}" / _folder(variant)

    def _spec(self, arm: str, run: int, variant: Variant) -> SampleSpec:
        return SampleSpec(
            arm=arm,
            target=self.target,
            spawned=0.0,
            reference=str(self.scratch / f"eager-{run if arm == 'eager' else self.reference}.pt"),
            store=str(self._functions) if arm == "aot" else self.store,
            access=asdict(PRIVATE if arm == "aot" else self.access),
            publish=arm == "cold" and variant.label not in self.published,
            mega=str(self.scratch / f"{_folder(variant)}.mega"),
            variant=asdict(variant),
            options=asdict(self.options),
            rounds=self.rounds,
        )


def _folder(variant: Variant) -> str:
    """A short name that every compiler takes: a label may hold quotes, and be long."""
    return hashlib.sha256(variant.label.encode()).hexdigest()[:12]


def _checked(arm: str, outcome: Mapping[str, Any]) -> Sample:
    report = outcome["report"]
    verdict = Verdict(report["verdict"])
    if verdict not in EXPECTED[arm] or (arm == "local" and outcome["compiled"]):
        said = "; ".join(line.strip() for line in outcome["summary"].splitlines())
        raise TccacheError(
            f"the {arm} arm turned out {verdict}, so its seconds would carry a wrong label: {said}"
        )
    sample = Sample(
        arm=arm,
        verdict=verdict,
        first_call_s=outcome["first_call_s"],
        startup_s=outcome["startup_s"],
        stages=tuple((name, seconds) for name, seconds in outcome["stages"]),
        compiled=outcome["compiled"],
        native_builds=report["counts"]["native_builds"],
        difference=outcome["difference"],
        differences=tuple(text for call in outcome["calls"] for text in call["differences"]),
        summary=outcome["summary"],
        calls=tuple(CallTime(**call) for call in outcome["series"]),
        round_length=outcome["round_length"],
        peak_bytes=outcome["peak_bytes"],
        device_peak_bytes=outcome["device_peak_bytes"],
    )
    past = report["counts"]["aot_misses"] if arm == "aot" else 0
    if past:
        raise TccacheError(
            f"the aot arm made {past} calls past its functions: {outcome['summary']}"
        )
    steady = sample.steady_s
    stages = sample.stages if steady is None else (*sample.stages, ("steady", steady))
    return replace(sample, stages=stages)
