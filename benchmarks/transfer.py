"""push and pull of a 2,000-file tree against `aws s3 sync`, on one S3 server on this machine.

    python -m benchmarks.transfer [--runs 3] [--json FILE]

Whole processes, pair by pair. AWS_CLI names the aws command (default: aws on PATH).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.pairs import Figures, in_turn, ratio, wall_s
from benchmarks.trees import enlarged, real_tree

FILES = 2000
BUCKET = "benchmark"
# A server of its own process, as a real one is; it prints its address when it listens.
SERVER = """
import threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        with tempfile.TemporaryDirectory(prefix="tccache-bench-") as folder:
            results = measure(Path(folder), endpoint, options.runs)
    finally:
        server.kill()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def measure(folder: Path, endpoint: str, runs: int) -> dict[str, object]:
    """Makes the tree, times both tools in turn, prints and returns the figures."""
    tree = enlarged(real_tree(folder / "real"), folder / "tree", FILES)
    files = [path for path in tree.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    environ = _environ(folder, endpoint)
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


def _environ(folder: Path, endpoint: str) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(folder),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "TCCACHE_TRUST": "store",
    }


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
