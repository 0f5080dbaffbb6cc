"""What a warm start is spared, one thing at a time: seconds to the end of its first call.

    python -m benchmarks.last_second [--target demo:gpt] [--runs 5] [--json FILE]

The arms: all that is spared, each thing alone switched on again, and everything. They take turns,
each start a fresh process with empty directories and a pull, on a machine that has started before:
what is remembered of that is there, but for the arm `keep_keys`. One that is not warm ends the
benchmark. With Triton on the path its key and Inductor's workers count, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.pairs import Figures, in_turn, ratio
from benchmarks.spared import OFF
from cachesvc.start.process import fresh_environment, run_program, run_sample
from cachesvc.start.sample import SampleSpec, spec_text

SPARED = (
    *("spare_headers", "spare_probes", "spare_names"),
    *("spare_local_map", "spare_pool", "keep_keys", "keep_answers"),
)
ARMS = {"nothing more": (), **{name: (name,) for name in SPARED}, "everything": SPARED}
REMEMBERED = "remembered.json"


class Starts:
    """Warm starts of one workload, with something switched on again; processes by arm."""

    def __init__(self, target: str, scratch: Path) -> None:
        self._scratch = scratch
        self._spec = SampleSpec(
            arm="eager",
            target=target,
            spawned=0.0,
            reference=str(scratch / "eager.pt"),
            store=str(scratch / "store"),
        )
        self._remembered: tuple[Path, bytes] | None = None
        self.processes: dict[str, int] = {}

    def prepare(self) -> None:
        """Compiles and publishes, and starts once, so that this machine has started before."""
        for arm in ("eager", "cold"):
            spec = replace(self._spec, arm=arm, publish=arm == "cold")
            run_sample(spec, self._home(arm))
        home = self._home("first")
        self._outcome("nothing more", home)
        kept = next(home.rglob(REMEMBERED))
        self._remembered = kept.relative_to(home), kept.read_bytes()

    def first_call_s(self, arm: str, run: int) -> float:
        home = self._home(f"{arm}-{run}")
        if self._remembered is not None and "keep_keys" not in ARMS[arm]:
            file = home / self._remembered[0]
            file.parent.mkdir(parents=True)
            file.write_bytes(self._remembered[1])
        try:
            outcome = self._outcome(arm, home)
        finally:
            shutil.rmtree(home)
        if outcome["report"]["verdict"] != "warm" and arm == "nothing more":
            sys.exit(f"a start was not warm: {outcome['summary']}")
        if outcome["compiled"]:
            sys.exit(f"a start has compiled: {outcome['summary']}")
        self.processes[arm] = outcome["processes"]
        return float(outcome["first_call_s"])

    def _home(self, name: str) -> Path:
        home = self._scratch / name.replace(" ", "-")
        home.mkdir()
        return home

    def _outcome(self, arm: str, home: Path) -> dict[str, Any]:
        spec = replace(self._spec, arm="warm", spawned=time.monotonic())
        environ = {**fresh_environment(home), OFF: " ".join(ARMS[arm])}
        failing = f"the start with {arm} failed"
        return run_program(
            "benchmarks.spared", spec_text(spec), home, environ=environ, cwd=None, failing=failing
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="demo:gpt")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tccache-bench-") as name:
        starts = Starts(options.target, Path(name))
        starts.prepare()
        figures = dict(
            zip(ARMS, in_turn(options.runs, *(_arm(starts, arm) for arm in ARMS)), strict=True)
        )
    least = figures["nothing more"]
    print("| switched on again | first call, s | more than with nothing | ratio | processes |")
    print("|---|---|---|---|---|")
    for arm, told in figures.items():
        pairs = zip(told.samples, least.samples, strict=True)
        more = Figures(tuple(one - other for one, other in pairs))
        print(f"| {arm} | {told} | {more} | {ratio(told, least)} | {starts.processes[arm]} |")
    if options.json:
        options.json.write_text(json.dumps(_told(options.target, figures, starts), indent=2))


def _arm(starts: Starts, arm: str) -> Any:
    return lambda run: starts.first_call_s(arm, run)


def _told(target: str, figures: dict[str, Figures], starts: Starts) -> dict[str, Any]:
    arms = {
        arm: {"first_call_s": told.to_json(), "processes": starts.processes[arm]}
        for arm, told in figures.items()
    }
    return {"target": target, "cpus": len(os.sched_getaffinity(0)), "arms": arms}


if __name__ == "__main__":
    main()
