"""Cold and warm starts on a GPU, and the readers that only a GPU machine exercises.

    python -m benchmarks.gpu [--runs 3] [--json FILE]

Each start is a fresh process with directories of its own; warm starts at another path than cold.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import cachesvc

TARGETS = ("benchmarks.gpu_workloads:resnet50", "benchmarks.gpu_workloads:gpt24")


def fingerprint_agrees() -> dict[str, object]:
    """The fingerprint read without torch, beside what torch says."""
    read = cachesvc.read_environment()
    import torch

    device = torch.cuda.get_device_name(0)
    capability = ".".join(map(str, torch.cuda.get_device_capability(0)))
    return {
        "components": dict(read),
        "agrees": (read["device"], read["capability"]) == (device, capability),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    fingerprint = fingerprint_agrees()
    results: dict[str, object] = {"fingerprint": fingerprint}
    print(f"fingerprint agrees with torch: {fingerprint['agrees']}")
    for target in TARGETS:
        done = cachesvc.demo(
            target, runs=options.runs, progress=lambda step: print(step, file=sys.stderr)
        )
        print(f"{target}: pack {done.pack_bytes / 1e6:.1f} MB")
        for arm in done.arms:
            sample = arm.samples[0]
            print(
                f"  {arm.name:6} first call {arm.first_call_s}, process {arm.startup_s},"
                f" {arm.verdict}, {sample.compiled} compiled, {sample.native_builds} native builds"
            )
            print(f"         {sample.summary.splitlines()[0]}")
            print(f"         {', '.join(f'{name} {s:.2f}' for name, s in arm.stages.items())}")
        results[target] = {arm.name: arm.to_json() for arm in done.arms}
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
