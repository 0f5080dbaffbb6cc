"""Is a call ever answered wrongly by a function compiled ahead of time? Models, changes, outcomes.

    python -m benchmarks.probes [--families a,b] [--work FOLDER] [--json FILE] [--jobs 2]

Each family's call is captured once, in a process of its own, and kept in the folder. Another
process makes each change to a new model: before it is armed, and after it was armed and called.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.probes.families import FAMILIES

QUICK = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "OMP_NUM_THREADS": "1",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", default=",".join(family.name for family in FAMILIES))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = probed(options.families.split(","), options.work or Path(temporary), options.jobs)
    for name, outcomes in found.items():
        print(row(name, outcomes))
    print(row("all", [outcome for outcomes in found.values() for outcome in outcomes]))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def probed(families: list[str], work: Path, jobs: int = 2) -> dict[str, list[dict[str, Any]]]:
    """The outcomes of each family's probes, captured functions being kept in `work`."""
    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda name: _family(name, work), families)
        return dict(zip(families, results, strict=True))


def _family(name: str, work: Path) -> list[dict[str, Any]]:
    units = work / "units" / name
    if not units.is_dir():
        _run(work, "benchmarks.probes.record", name, str(units))
    output = work / f"{name}.json"
    _run(work, "benchmarks.probes.run", name, str(units), str(output))
    found: list[dict[str, Any]] = json.loads(output.read_text())
    return found


def _run(work: Path, *command: str) -> None:
    places = {"TORCHINDUCTOR_CACHE_DIR": str(work / "inductor")}
    subprocess.run(
        [sys.executable, "-m", *command], check=True, env={**os.environ, **QUICK, **places}
    )


def row(name: str, outcomes: list[dict[str, Any]]) -> str:
    """One line of the table: how many went which way."""
    ways = [outcome["way"] for outcome in outcomes if outcome["way"] != "inapplicable"]
    counts = (ways.count(way) for way in ("refused", "passed on", "served"))
    wrong = sum(outcome["wrong"] for outcome in outcomes)
    missed = sum(outcome["missed"] for outcome in outcomes)
    cells = (name, len(ways), *counts, wrong, missed)
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
