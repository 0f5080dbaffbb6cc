"""Builds whose processes are forks of one that has imported torch already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachesvc import Built, build
from cachesvc.start import process
from cachesvc.start.program import Ended

TARGETS = Path(__file__).parent / "targets"

SAMPLE = """
import importlib, os, sys
sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
importlib.import_module(given["program"]).main(given["spec"], given["result"])
"""

SERVE = """
import sys
sys.path.insert(0, given["targets"])
from cachesvc.runtime.rounds import load_seeded

def serve(target, **options):
    "A serving process: the workload's calls behind a warm start, and what they gave."
    workload, outputs = load_seeded(target), []
    def made(call):
        if callable(call):
            return lambda: outputs.append(call())
        args, kwargs = ((), call) if isinstance(call, dict) else (call, {})
        model = torch.compile(workload.model)
        return lambda: outputs.append(model(*args, **kwargs))
    with torch.set_grad_enabled(workload.training):
        report = cachesvc.warm_start(
            workload.model, calls=[made(call) for call in workload.calls],
            store=given["store"], label=workload.name, **options
        )
    return report, outputs

def eager(target):
    "The same calls with nothing compiled."
    workload = load_seeded(target)
    def make(call):
        if callable(call):
            return call()
        return workload.model(**call) if isinstance(call, dict) else workload.model(*call)
    with torch.set_grad_enabled(workload.training), torch.compiler.set_stance("force_eager"):
        return [make(call) for call in workload.calls]
"""


@dataclass(frozen=True)
class Builds:
    """Builds targets of `targets/`, and starts what was built in fresh processes."""

    fresh: Any

    def build(self, target: str, **options: Any) -> Built:
        with self.forked():
            return build(target, **options)

    @contextmanager
    def forked(self) -> Iterator[None]:
        """Within this context the processes of samples are forks."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process, "execute", self._execute)
            patch.setenv("PYTHONPATH", str(TARGETS))
            yield

    def _execute(
        self,
        program: str,
        spec: Path,
        result: Path,
        environ: Mapping[str, str],
        cwd: Path | None,
    ) -> tuple[Ended, str]:
        given = {"program": program, "spec": spec, "result": result}
        env = {**dict.fromkeys(os.environ), **environ}
        try:
            self.fresh.run(SAMPLE, given=given, env=env, cwd=cwd or Path.cwd(), prelude="")
        except AssertionError as error:
            return Ended(1), str(error)
        return Ended(0), ""

    def serve(self, script: str, *, store: Path) -> Any:
        """Runs a script with `serve` and `eager` in a process that knows nothing of the build."""
        given = {"store": store, "targets": TARGETS}
        return self.fresh.run(SERVE + script, given=given)
