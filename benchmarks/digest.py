"""What the model digest of a large model costs: a Llama of 8 billion parameters without weights.

    python -m benchmarks.digest [--runs 5] [--json FILE]

The model lies on the meta device. Each sample is a fresh process, timed around the first digest
that it takes, with the model built; a second one costs the same, since nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.pairs import Figures

DIGEST = """
import time, torch
from transformers import LlamaConfig, LlamaForCausalLM
from cachesvc.runtime.model import model_components
config = LlamaConfig(
    hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, vocab_size=128256,
)
with torch.device("meta"):
    model = LlamaForCausalLM(config)
started = time.perf_counter()
components = model_components(model)
seconds = time.perf_counter() - started
print(seconds, len(components), sum(len(name) + len(text) for name, text in components.items()))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    samples = [_sample() for _ in range(options.runs)]
    figures = Figures(tuple(float(seconds) for seconds, _, _ in samples))
    _, components, size = samples[0]
    print(f"digest of an 8B Llama on meta: {figures}; {components} components, {size} bytes")
    if options.json:
        facts = {"digest_s": figures.to_json(), "components": int(components), "bytes": int(size)}
        options.json.write_text(json.dumps(facts, indent=2))


def _sample() -> list[str]:
    command = [sys.executable, "-c", DIGEST]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


if __name__ == "__main__":
    main()
