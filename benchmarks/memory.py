"""Peak memory of push, merging push and pull of a 4 GB tree, over an interpreter that only imports.

python -m benchmarks.memory [--gigabytes 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

# The imports of both verbs, so that what is left is what they hold while they work.
CHILD = """
import resource, sys, cachesvc, zstandard, tarfile
push, pull = cachesvc.push, cachesvc.pull
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
verb, store, folder = sys.argv[1:]
(push if verb == "push" else pull)("memory", store=store, inductor_dir=folder)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
FILE_BYTES = 256 << 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tccache-bench-") as name:
        folder = Path(name)
        files = int(options.gigabytes * 1e9 / FILE_BYTES)
        _tree(folder / "first", range(files))
        _tree(folder / "second", range(files, files + 10))
        store = str(folder / "store")
        figures = {
            "push": _peak("push", store, folder / "first"),
            "push that merges": _peak("push", store, folder / "second"),
            "pull": _peak("pull", store, folder / "pulled"),
        }
    print(f"{files} files, {files * FILE_BYTES / 1e9:.1f} GB; MB over the interpreter")
    for verb, peak in figures.items():
        print(f"{verb}: {peak:.0f} MB")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


def _peak(verb: str, store: str, folder: Path) -> float:
    command = [sys.executable, "-c", CHILD, verb, store, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return int(done.stdout) * 1024 / 1e6


def _tree(folder: Path, numbers: range) -> None:
    """Files that share most of their bytes with the one before, as kernels do."""
    rng = random.Random(0)
    block = rng.randbytes(FILE_BYTES)
    for number in numbers:
        file = folder / f"{number % 676:02x}"[:2] / f"c{number:08d}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        at = (number * 4096) % FILE_BYTES
        file.write_bytes(block[:at] + rng.randbytes(4096) + block[at + 4096 :])


if __name__ == "__main__":
    main()
