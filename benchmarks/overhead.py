"""What tccache itself costs: its imports, its help, and a start with everything in place.

    python -m benchmarks.overhead [--runs 15] [--json FILE]

Imports are whole processes against an empty interpreter, in turn. The start without calls is
timed inside fresh processes, around `cachesvc.warm_start(...)` alone, with torch imported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cachesvc
from benchmarks.pairs import Figures, in_turn, wall_s

KERNELS = 1250
FILES_EACH = 8
CHECK = """
import sys, {what}
heavy = {{"torch", "boto3", "botocore"}} & set(sys.modules)
sys.exit(str(heavy) if heavy else 0)
"""
START = """
import sys, time, torch, cachesvc
model = torch.nn.Linear(3, 3)
started = time.perf_counter()
report = cachesvc.warm_start(model, store=sys.argv[1], label="ten-thousand")
seconds = time.perf_counter() - started
assert report.transfer.seeded == 0 and report.transfer.in_place == int(sys.argv[2]), report
print(seconds)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    python, tccache = sys.executable, str(Path(sys.executable).parent / "tccache")
    for what in ("cachesvc", "tccache.main"):
        wall_s([python, "-c", CHECK.format(what=what)])
    empty, library, command = in_turn(
        options.runs,
        lambda _: wall_s([python, "-c", "pass"]),
        lambda _: wall_s([python, "-c", "import cachesvc"]),
        lambda _: wall_s([tccache, "--help"]),
    )
    over_library = _over(library, empty)
    over_command = _over(command, empty)
    print(f"empty interpreter {empty}; seconds over it, {options.runs} runs:")
    print(f"import cachesvc {over_library}")
    print(f"tccache --help {over_command}")
    start = in_place(options.runs)
    print(f"warm_start without calls, {KERNELS * FILES_EACH} files in place: {start}")
    if options.json:
        figures = {
            "empty_s": empty.to_json(),
            "import_over_empty_s": over_library.to_json(),
            "help_over_empty_s": over_command.to_json(),
            "in_place_s": start.to_json(),
        }
        options.json.write_text(json.dumps(figures, indent=2))


def _over(figures: Figures, empty: Figures) -> Figures:
    pairs = zip(figures.samples, empty.samples, strict=True)
    return Figures(tuple(one - other for one, other in pairs))


def in_place(runs: int) -> Figures:
    """Seconds of `warm_start` without calls where all files lie in place."""
    with tempfile.TemporaryDirectory(prefix="tccache-bench-") as name:
        folder = Path(name)
        store = str(folder / "store")
        environ = {**os.environ, "TCCACHE_HOME": str(folder / "home")}
        _kernels(folder / "triton")
        cachesvc.push("ten-thousand", store=store, triton_dir=folder / "triton")
        os.environ["TCCACHE_HOME"] = environ["TCCACHE_HOME"]
        cachesvc.pull("ten-thousand", store=store)
        command = [sys.executable, "-c", START, store, str(KERNELS)]
        outputs = [
            subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
            for _ in range(runs)
        ]
    return Figures(tuple(float(output) for output in outputs))


def _kernels(triton: Path) -> None:
    """Kernels as Triton lays them out, eight small files each."""
    for number in range(KERNELS):
        folder = triton / hashlib.sha256(str(number).encode()).hexdigest()[:52].upper()
        folder.mkdir(parents=True)
        suffixes = ("ttir", "ttgir", "llir", "amdgcn", "hsaco", "source", "json")
        names = [f"kernel_{number}.{suffix}" for suffix in suffixes]
        for name in names:
            (folder / name).write_bytes(name.encode() * 20)
        group = {"child_paths": {name: str(folder / name) for name in names}}
        (folder / f"__grp__kernel_{number}.json").write_text(json.dumps(group))


if __name__ == "__main__":
    main()
