"""The ladder of tiers: how much of a cold start each of them leaves, all in one run.

    python -m benchmarks.ladder [--runs 3] [--workloads demo:gpt ...] [--json]

Every sample is a fresh process, the arms take turns; the targets are ratios of arms of the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import cachesvc

ARMS = {
    "eager": "eager",
    "cold": "cold",
    "mega-cache": "megacache",
    "directories": "warm",
    "aot": "aot",
}
"""The rungs, by the names that a bench has for them."""

TIMES_EAGER, PLUS_S, TIMES_FASTER = 1.5, 0.5, 40.0
"""The targets on two cores: at most so many times eager's first call and so many seconds more, and
so many times faster than cold."""


WORKLOADS = ("demo:gpt", "benchmarks.hf:workload")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {name: measured(name, options.runs) for name in options.workloads}
    print(json.dumps({"workloads": found}, indent=2) if options.json else "\n".join(lines(found)))


def measured(target: str, runs: int) -> dict[str, Any]:
    """The rungs of one workload."""
    told = cachesvc.bench(target, runs=runs, arms=list(ARMS.values()), calls=3, progress=_on_stderr)
    for failure in told.failures:
        print(f"{target}: {failure}", file=sys.stderr)
    (trial,) = told.trials
    arms = {arm.name: arm for arm in trial.arms}
    rungs = {rung: _spreads(arms[name]) for rung, name in ARMS.items() if name in arms}
    return {"arms": rungs, "targets": targets(rungs)}


def _spreads(arm: Any) -> dict[str, Any]:
    return {
        name: {
            "median": spread.median,
            "min": min(spread.samples),
            "max": max(spread.samples),
            "samples": list(spread.samples),
        }
        for name, spread in (("first_call_s", arm.first_call_s), ("startup_s", arm.startup_s))
    }


def targets(rungs: Mapping[str, Any]) -> dict[str, Any]:
    """What was aimed at and what came of it; empty where an arm failed."""
    if not {"eager", "cold", "aot"} <= rungs.keys():
        return {}
    eager, cold, aot = (rungs[r]["first_call_s"]["median"] for r in ("eager", "cold", "aot"))
    limit = TIMES_EAGER * eager + PLUS_S
    return {
        "first_call_limit_s": limit,
        "first_call_s": aot,
        "first_call_met": aot <= limit,
        "faster_than_cold": cold / aot,
        "faster_than_cold_met": cold / aot >= TIMES_FASTER,
    }


def lines(found: Mapping[str, Any]) -> Iterable[str]:
    """A table for people."""
    for name, told in found.items():
        yield f"{name}"
        for rung, figures in told["arms"].items():
            first, startup = figures["first_call_s"], figures["startup_s"]
            yield (
                f"  {rung:12} first call {first['median']:7.3f} s ({first['min']:.3f} to"
                f" {first['max']:.3f}), process {startup['median']:7.3f} s"
            )
        if aim := told["targets"]:
            yield (
                f"  aot {aim['first_call_s']:.3f} s of at most {aim['first_call_limit_s']:.3f} s;"
                f" {aim['faster_than_cold']:.0f} times faster than cold"
            )


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
