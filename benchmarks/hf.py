"""A Llama of transformers: eager, cold and warm.

    python -m benchmarks.hf [--layers 16] [--runs 3] [--json FILE]

Random weights, hidden size 256, one prompt of 64 tokens, on the GPU where there is one. Each start
is a fresh process with directories of its own; warm starts at another path than cold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import torch

import cachesvc

LAYERS = "BENCHMARK_LAYERS"
TARGET_RATIO = 5.0


def workload() -> cachesvc.Workload:
    """The model with as many layers as the variable BENCHMARK_LAYERS says."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=int(os.environ.get(LAYERS, "16")),
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=4096,
        use_cache=False,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM(config).eval().to(device)
    ids = torch.randint(0, 4096, (1, 64), device=device)
    return cachesvc.Workload("hf-llama", model, [{"input_ids": ids}])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ[LAYERS] = str(options.layers)
    done = cachesvc.demo(
        "benchmarks.hf:workload",
        runs=options.runs,
        progress=lambda step: print(step, file=sys.stderr),
    )
    print(f"Llama of {options.layers} layers, {done.pack_bytes / 1e3:.0f} kB published\n")
    print("| start | first call, s | process to result, s | verdict | compiled | native builds |")
    print("|---|---|---|---|---|---|")
    for arm in done.arms:
        sample = arm.samples[0]
        print(
            f"| {arm.name} | {arm.first_call_s} | {arm.startup_s} | {arm.verdict} |"
            f" {sample.compiled} | {sample.native_builds} |"
        )
    ratio, startup = done.ratio("cold", "warm"), done.startup_ratio("cold", "warm")
    apart = max(sample.difference or 0.0 for sample in done.arm("warm").samples)
    print(
        f"\nCold over warm: {ratio:.1f} for the first call (wanted: {TARGET_RATIO:g}),"
        f" {startup:.1f} for the process. Greatest difference between a warm output and the eager"
        f" one: {apart:.1e}"
    )
    if options.json:
        arms = {arm.name: arm.to_json() for arm in done.arms}
        options.json.write_text(json.dumps({"layers": options.layers, "arms": arms}, indent=2))


if __name__ == "__main__":
    main()
