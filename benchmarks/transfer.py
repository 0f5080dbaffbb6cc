"""push and pull of a 2,000-file tree against `aws s3 sync`, on one S3 server on this machine.

    python -m benchmarks.transfer [--runs 3] [--json FILE]

Whole processes, pair by pair. AWS_CLI names the aws command (default: aws on PATH).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.pairs import Figures, in_turn, ratio, wall_s
from benchmarks.s3_server import BUCKET, s3_server
from benchmarks.trees import enlarged, real_tree

FILES = 2000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with s3_server() as access, tempfile.TemporaryDirectory(prefix="tccache-bench-") as folder:
        results = measure(Path(folder), access, options.runs)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def measure(folder: Path, access: Mapping[str, str], runs: int) -> dict[str, object]:
    """Makes the tree, times both tools in turn, prints and returns the figures."""
    tree = enlarged(real_tree(folder / "real"), folder / "tree", FILES)
    files = [path for path in tree.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    environ = _environ(folder, access)
    aws = (
        os.environ.get("AWS_CLI") or shutil.which("aws") or sys.exit("no aws command: set AWS_CLI")
    )
    tccache = str(Path(sys.executable).parent / "tccache")
    wall_s([aws, "s3", "mb", f"s3://{BUCKET}"], environ)

    def ours(verb: str, run: int, at: Path) -> float:
        command = [tccache, verb, f"run{run}", "--store", f"s3://{BUCKET}/ours"]
        trees = ["--inductor-dir", str(at / "inductor"), "--triton-dir", str(at / "triton")]
        return wall_s(
            [*command, *trees, "--environment", str(folder / "environment.json")], environ
        )

    def theirs(run: int, source: str, target: str) -> float:
        return wall_s([aws, "s3", "sync", "--quiet", source, target], environ)

    (folder / "environment.json").write_text(json.dumps(_environment(folder / "real")))
    remote = f"s3://{BUCKET}/theirs"
    push, sync_up = in_turn(
        runs,
        lambda run: ours("push", run, tree),
        lambda run: theirs(run, str(tree), f"{remote}/{run}"),
    )
    pull, sync_down = in_turn(
        runs,
        lambda run: ours("pull", run, folder / "pulled" / str(run)),
        lambda run: theirs(run, f"{remote}/{run}", str(folder / "synced" / str(run))),
    )
    print(f"{len(files)} files, {size / 1e6:.1f} MB; seconds of whole processes, {runs} pairs")
    for verb, our, their in (("push", push, sync_up), ("pull", pull, sync_down)):
        print(f"{verb}: tccache {our}, aws s3 sync {their}, ratio {ratio(their, our)}")
    return {
        "files": len(files),
        "bytes": size,
        "push": _figures(push, sync_up),
        "pull": _figures(pull, sync_down),
    }


def _figures(ours: Figures, theirs: Figures) -> dict[str, object]:
    return {
        "tccache_s": ours.to_json(),
        "aws_s3_sync_s": theirs.to_json(),
        "ratio": ratio(theirs, ours).to_json(),
    }


def _environ(folder: Path, access: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), **access, "TCCACHE_TRUST": "store"}


def _environment(real: Path) -> dict[str, str]:
    origin = json.loads((real / "origin.json").read_text())
    kept = {name: origin[name] for name in ("torch", "torch_git", "triton", "device", "capability")}
    return {
        **kept,
        "runtime": f"cuda {origin['cuda']}",
        "python": "cpython-312-x86_64-linux-gnu",
        "platform": "linux-x86_64-glibc",
    }


if __name__ == "__main__":
    main()
