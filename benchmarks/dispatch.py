"""What it costs to ask, before each call, whether a function compiled ahead of time is right.

    python -m benchmarks.dispatch [--repeats 200] [--json FILE]

A Hugging Face Llama of 22 layers (about 300 modules) and `demo:gpt`. Microseconds of each question
for one call; milliseconds of what is done once, when a model is armed and first called. Both of one
thread's processor time, and minima of many repeats: what is asked is the same each time, all else
is noise.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cachesvc.runtime.aot.call_key import call_key
from cachesvc.runtime.aot.dispatch import Watched
from cachesvc.runtime.aot.ledger import Ledger, ledger_of, noting
from cachesvc.runtime.aot.paths import Paths
from cachesvc.runtime.aot.pins import library_of
from cachesvc.runtime.aot.seal import Seal
from cachesvc.runtime.aot.state import is_transformed, state_facts
from cachesvc.runtime.model import read_model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {
        "llama, 22 layers": _figures(*_llama(), options.repeats),
        "demo:gpt": _figures(*_gpt(), options.repeats),
    }
    for name, figures in found.items():
        print(f"{name}: " + ", ".join(f"{what} {value:.1f}" for what, value in figures.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def _llama() -> tuple[Any, dict[str, Any]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=22,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    ids = torch.randint(0, 128, (1, 16))
    return LlamaForCausalLM(config).eval(), {"input_ids": ids, "attention_mask": ids * 0 + 1}


def _gpt() -> tuple[Any, dict[str, Any]]:
    from cachesvc.runtime.workloads.gpt import Gpt

    model = Gpt(layers=12, width=32, heads=4, tokens=64, vocabulary=128)
    return model.eval(), {"ids": torch.randint(0, 128, (1, 16))}


def _figures(model: Any, kwargs: dict[str, Any], repeats: int) -> dict[str, float]:
    with torch.no_grad():
        ledger = _ledger(model, kwargs)
        reading = read_model(model)
        own = type(model).forward
        watched = Watched(model, "", reading, {})
        paths = Paths(ledger, model, own, (model,), kwargs, loose=watched.loose)
        library = library_of(reading)
        us = {
            "key us": _least(lambda: call_key((), kwargs, watched.tensors), repeats),
            "state us": _least(lambda: (is_transformed(), hash(state_facts())), repeats),
            "seal us": _least(watched.fits, repeats),
            "paths us": _least(paths.are_whole, repeats),
        }
        few = max(3, repeats // 20)
        ms = {
            "seal ms": _least(lambda: Seal(reading, library), few) / 1e3,
            "torch ms": _least(library.digest, few) / 1e3,
            "paths ms": _least(
                lambda: Paths(ledger, model, own, (model,), kwargs, loose=watched.loose), few
            )
            / 1e3,
            "ledger ms": _least(lambda: _asked(ledger, own, model, kwargs), few) / 1e3,
            "digest ms": _least(lambda: read_model(model), few) / 1e3,
        }
    return {
        "modules": len(list(model.modules())),
        "constants": len(ledger.expected),
        **us,
        "a call us": sum(us.values()),
        **ms,
    }


def _asked(ledger: Ledger, own: Any, model: Any, kwargs: dict[str, Any]) -> None:
    if difference := ledger.first_difference(own, (model,), kwargs):
        raise SystemExit(difference)


def _ledger(model: Any, kwargs: dict[str, Any]) -> Ledger:
    """What Dynamo takes for constant in a call; nothing is compiled for it."""
    guards: list[Any] = []
    options = {"guard_filter_fn": noting(lambda entries: [True] * len(entries), guards)}
    compiled = torch.compile(model.forward, fullgraph=True, backend="eager", options=options)
    compiled(**kwargs)
    names = (name for guard in guards for name in _aliases(str(guard.name)))
    own = type(model).forward
    return ledger_of(guards, dict(names), own, (model,), kwargs)


def _aliases(name: str) -> list[tuple[str, str]]:
    """The module behind a name such as `__import_torch_dot_nn`."""
    found = [part for part in name.split("'") if part.startswith("__import_")]
    return [(part, part.removeprefix("__import_").replace("_dot_", ".")) for part in found]


def _least(call: Callable[[], object], repeats: int) -> float:
    """The least time of one call, in microseconds."""
    seconds = []
    for _ in range(repeats):
        started = time.thread_time()
        call()
        seconds.append(time.thread_time() - started)
    return min(seconds) * 1e6


if __name__ == "__main__":
    main()
