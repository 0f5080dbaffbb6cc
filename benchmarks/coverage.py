"""Which families of models start warm in which tier, and why not.

    python -m benchmarks.coverage [--families llama demo:gpt ...] [--json]

One start of each kind, each a fresh process with directories of its own; outputs are compared with
eager ones. The rows of the table in docs/coverage.md, or one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import cachesvc

TIERS = {"cold": "cold", "mega-cache": "megacache", "directories": "warm", "aot": "aot"}
"""The columns of the table, by the names that a bench has for them."""

FAMILIES = (
    *("llama", "qwen2", "qwen3", "mistral", "gemma3", "phi3", "gpt2"),
    *("mixtral", "qwen3_moe", "mamba"),
    *("bert", "roberta", "t5", "vit", "clip", "whisper", "unet"),
    *("demo:resnet", "demo:gpt", "demo:mlp"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {}
    if not options.json:
        print(f"| family | eager | {' | '.join(TIERS)} |\n|{'---|' * (len(TIERS) + 2)}")
    for family in options.families:
        found[family] = measured(family)
        if not options.json:
            print(row(family, found[family]), flush=True)
    if options.json:
        print(json.dumps({"families": found}, indent=2))


def measured(family: str) -> dict[str, Any]:
    """Of eager and of each tier: the verdict and the seconds of the first call, or the reason why
    there are none."""
    target = family if ":" in family else f"benchmarks.families:{family}"
    arms = list(TIERS.values())
    try:
        told = cachesvc.bench(target, runs=1, arms=arms, calls=1, progress=_on_stderr)
    except cachesvc.TccacheError as error:
        return {"eager": {"reason": str(error)}}
    reasons = {failure.arm: failure.reason for failure in told.failures}
    (trial,) = told.trials
    names = {"eager": "eager", **TIERS}
    return {tier: _cell(trial.arm(arm), reasons.get(arm, "")) for tier, arm in names.items()}


def _cell(arm: Any, reason: str) -> dict[str, Any]:
    if arm is None:
        return {"reason": " ".join(reason.split())}
    sample = arm.samples[0]
    return {
        "verdict": sample.verdict.value,
        "first_call_s": sample.first_call_s,
        "difference": sample.difference,
    }


def row(family: str, tiers: dict[str, Any]) -> str:
    """One line of the table."""
    cells = [_shown(tiers[tier]) if tier in tiers else "" for tier in ("eager", *TIERS)]
    return f"| {family} | {' | '.join(cells)} |"


def _shown(cell: dict[str, Any]) -> str:
    if "verdict" not in cell:
        return cell["reason"].replace("|", "/")
    seconds = f"{cell['first_call_s']:.2f} s"
    return seconds if cell["verdict"] in ("eager", "cold") else f"{cell['verdict']}, {seconds}"


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
