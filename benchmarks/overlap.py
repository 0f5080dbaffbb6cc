"""A start with and without `cachesvc.prefetch`, of a program that loads weights from a disk.

    python -m benchmarks.overlap [--layers 8] [--runs 3] [--latency 0.1] [--wait 3] [--json FILE]

A Llama of transformers with some 400 MB of weights in safetensors, whose file is dropped from
memory before each run, and an S3 server on this machine, each answer of which comes `latency`
seconds late. Once the weights are simply read, which keeps a core busy, and once the program first
waits for them, as for a network: `wait` seconds. Each start is a fresh process with a live
directory of its own, warm by its verdict; the arms take turns. Seconds are from the beginning of
the process to the first result.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import boto3

from benchmarks.pairs import Figures, in_turn
from benchmarks.s3_server import BUCKET, s3_server

ARMS = ("without", "prefetch", "prefetch, compiler")

WEIGHTS = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=768, intermediate_size=2048, num_hidden_layers=int(sys.argv[2]),
    num_attention_heads=12, num_key_value_heads=12, vocab_size=32000, use_cache=False,
)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
"""
PROGRAM = """
import json, os, sys, time
import cachesvc
from cachesvc.store.location import open_store
from cachesvc.store.wrapper import Wrapper
given = json.loads(sys.argv[1])

class Far(Wrapper):
    def _fetch(self, key, target):
        time.sleep(given["latency"])
        return super()._fetch(key, target)

    def _list(self, prefix):
        time.sleep(given["latency"])
        return super()._list(prefix)

store = Far(open_store(given["store"], trusted=True))
if given["arm"].startswith("prefetch"):
    begun = time.perf_counter()
    cachesvc.prefetch("llama", store=store, trust="store")
    prefetch_s = time.perf_counter() - begun
import torch
from transformers import LlamaForCausalLM
if given["arm"].endswith("compiler"):
    cachesvc.prefetch("llama", store=store, trust="store", compiler=True)
time.sleep(given["wait"])
model = LlamaForCausalLM.from_pretrained(given["weights"]).eval()
total = sum(float(p.detach().sum()) for p in model.parameters())  # has every page read
loaded_s = time.time() - given["began"]
with torch.no_grad():
    inputs = [{"input_ids": torch.arange(16).reshape(1, 16)}]
    called = time.perf_counter()
    report = cachesvc.warm_start(
        torch.compile(model), calls=inputs, store=store, trust="store", label="llama"
    )
    start_s = time.perf_counter() - called
startup_s = time.time() - given["began"]
if given["arm"] == "publish":
    cachesvc.push(model, report=report, store=store, trust="store", label="llama")
elif report.verdict != "warm" or report.transfer.packs != (given["arm"] == "without"):
    sys.exit(str(report))
print(json.dumps({
    "startup_s": startup_s, "loaded_s": loaded_s, "warm_start_s": start_s,
    "prefetch_call_s": locals().get("prefetch_s"), "prefetched": report.to_json()["prefetched"],
    "text": str(report.prefetched),
    "stages": report.to_json()["stages"],
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--wait", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with s3_server() as access, tempfile.TemporaryDirectory(prefix="tccache-bench-") as folder:
        os.environ |= access
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        results = measure(Path(folder), options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def measure(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Makes the weights and the bundle, times the arms, prints and returns the figures."""
    weights = folder / "weights"
    command = [sys.executable, "-c", WEIGHTS, str(weights), str(options.layers)]
    subprocess.run(command, check=True, capture_output=True)
    size = sum(file.stat().st_size for file in weights.iterdir())
    given = {"store": f"s3://{BUCKET}/overlap", "weights": str(weights)}
    started(folder / "publish", given | {"arm": "publish", "latency": 0.0, "wait": 0.0})
    print(f"{size / 1e6:.0f} MB of weights, {options.latency:g} s a request, {options.runs} runs")
    found: dict[str, object] = {"weights_bytes": size, "latency_s": options.latency}
    for name, wait in (("read", 0.0), ("waited for", options.wait)):
        how = given | {"latency": options.latency, "wait": wait}
        found[name] = compared(folder / name, how, options.runs, f"weights {name}, {wait:g} s")
    return found


def compared(folder: Path, given: Mapping[str, object], runs: int, title: str) -> dict[str, object]:
    """The arms in turn: prints a table and the last ledgers, returns the figures."""
    told: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}

    def sample(arm: str, run: int) -> float:
        told[arm].append(started(folder / arm / str(run), {**given, "arm": arm}))
        return float(told[arm][-1]["startup_s"])

    in_turn(runs, *(partial(sample, arm) for arm in ARMS))
    print(f"\n| {title} | process to result | until weights are loaded | warm_start and call |")
    print("|---|---|---|---|")
    for arm in ARMS:
        figures = (of(told[arm], name) for name in ("startup_s", "loaded_s", "warm_start_s"))
        print(f"| {arm} | {' | '.join(map(str, figures))} |")
    print()
    for arm in ARMS[1:]:
        print(f"{arm}, last run: {told[arm][-1]['text']}")
    return {
        arm: {"startup_s": of(told[arm], "startup_s").to_json(), "runs": told[arm]} for arm in ARMS
    }


def of(runs: list[dict[str, Any]], name: str) -> Figures:
    """One of the seconds that each run told."""
    return Figures(tuple(run[name] for run in runs))


def started(home: Path, given: Mapping[str, object]) -> dict[str, Any]:
    """What one fresh process tells, whose weights are not in memory."""
    home.mkdir(parents=True)
    os.sync()
    for file in Path(str(given["weights"])).iterdir():
        drop(file)
    environ = {**os.environ, "TCCACHE_HOME": str(home), "TMPDIR": str(home), "HF_HUB_OFFLINE": "1"}
    told = json.dumps({**given, "began": time.time()})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, told],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def drop(file: Path) -> None:
    """Takes a file out of the memory in which the kernel keeps what was read."""
    with open(file, "rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
