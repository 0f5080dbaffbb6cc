"""One start of a target under examination, as the main program of a fresh process.

    python -m cachesvc.start.examination SPEC RESULT

SPEC is a JSON file: `target`, and whether the directories are `filled`; RESULT is the file that the
outcome is written to. torch's trace goes where the environment says.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from cachesvc.core.digest import Json
from cachesvc.core.errors import TccacheError, UsageError


def run(target: str, *, filled: bool) -> dict[str, Json]:
    """Makes the calls of a target with what lies in the directories, publishing nothing.

    Where they are filled the start is prepared as a warm one is. The outcome holds the report, and
    the settings that the counters do not tell.
    """
    torch = importlib.import_module("torch")
    workloads = importlib.import_module("cachesvc.runtime.rounds")
    examine = importlib.import_module("cachesvc.runtime.examine")
    start = importlib.import_module("cachesvc.start.warm_start")
    if filled:
        importlib.import_module("cachesvc.runtime.headers").spare_headers()
        importlib.import_module("cachesvc.runtime.ptxas").find_either_ptxas()
    workload = workloads.load_seeded(target)
    with torch.set_grad_enabled(workload.training):
        report = start.observe(workload.model, calls=workload.calls)
    if len(report.calls) < len(workload.calls):
        raise TccacheError("; ".join(report.notes) or "a call was not made")
    return {
        "report": report.to_json(),
        "switched_off": list(examine.switched_off()),
        "recompile_limit": examine.recompile_limit(),
    }


def main(spec_file: str, result_file: str) -> None:
    spec = json.loads(Path(spec_file).read_text())
    try:
        outcome = run(spec["target"], filled=spec["filled"])
    except TccacheError as error:
        outcome = {"error": str(error), "usage": isinstance(error, UsageError)}
    Path(result_file).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
