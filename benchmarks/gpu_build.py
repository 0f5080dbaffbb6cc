"""What a pipeline and its replicas do on a GPU: build, run, explain.

    python -m benchmarks.gpu_build [--json FILE]

Builds a Llama and a training step (eager, cold and warm in fresh processes, outputs compared), runs
a plain program twice under `tccache run`, and asks `tccache explain` about one changed flag.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cachesvc

TARGETS = ("benchmarks.gpu_workloads:llama", "benchmarks.gpu_workloads:resnet50_training")
TOLERANCE = 0.05  # bfloat16 all through, and relative to the greatest value

PLAIN = """
import time, torch
import torch._dynamo.utils as utils
from benchmarks.gpu_workloads import gpt24

workload = gpt24()
model = torch.compile(workload.model)
with torch.no_grad():
    started = time.monotonic()
    model(*workload.calls[0])
    torch.cuda.synchronize()
counters = utils.counters["inductor"]
print(
    f"first call {time.monotonic() - started:.1f} s,"
    f" {counters['fxgraph_cache_hit']} hits, {counters['fxgraph_cache_miss']} misses"
)
"""


def built(target: str, store: Path) -> dict[str, object]:
    """Builds a target, and prints what came of it."""
    try:
        done = cachesvc.build(target, store=store, tolerance=TOLERANCE)
    except cachesvc.TccacheError as error:
        print(f"{target}: {error}")
        return {"error": str(error)}
    calls = ", ".join(
        f"{call.signature}: eager {call.eager_s:.2f}, cold {call.cold_s:.2f},"
        f" warm {call.warm_s:.2f} s, difference {call.difference}"
        for call in done.calls
    )
    print(f"{target}: {done.verdict}, pack {done.pack_bytes / 1e6:.1f} MB; {calls}")
    for text in (*done.verified, *done.reasons):
        print(f"  {text}")
    return done.to_json()


def ran(store: Path, folder: Path, home: str) -> None:
    """Runs the plain program under `tccache run`, from a live directory of its own."""
    (folder / "plain.py").write_text(PLAIN)
    command = [sys.executable, "-m", "tccache", "run", "plain", "--store", str(store), "--"]
    done = subprocess.run(
        [*command, sys.executable, str(folder / "plain.py")],
        env={**os.environ, "TCCACHE_HOME": str(folder / home), "PYTHONPATH": _path()},
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"run from {home}: {done.stdout.strip()}; {done.stderr.strip().splitlines()[-1:]}")


def _path() -> str:
    return os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])


def explained(store: Path) -> None:
    """Asks what differs with one flag of Triton's changed."""
    command = [sys.executable, "-m", "tccache", "explain", TARGETS[0], "--store", str(store)]
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_DEBUG": "1", "PYTHONPATH": _path()},
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"explain with TRITON_DEBUG=1: {done.stdout.strip()}{done.stderr.strip()[-300:]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "store"
        results = {target: built(target, store) for target in TARGETS}
        for home in ("machine-1", "machine-2"):
            ran(store, folder, home)
        explained(store)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
