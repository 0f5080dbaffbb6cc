"""hf:ARCH: models of the transformers library with random weights, made from a config."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from cachesvc.runtime.workloads import Workload
from cachesvc.runtime.workloads.architectures import (
    ARCHITECTURES,
    FIRST_WORD,
    SCALES,
    Architecture,
    Scale,
    Work,
)
from cachesvc.runtime.workloads.arguments import Compile
from cachesvc.runtime.workloads.device import device
from cachesvc.runtime.workloads.generation import Generator
from cachesvc.runtime.workloads.sizes import SMALL, bundle_name

NEW_TOKENS = 16


def workload(
    arch: str,
    size: str = SMALL,
    shapes: Sequence[int] = (),
    compile: Compile = torch.compile,
) -> Workload:
    """8 layers, width 256; on the GPU where there is one.

    A decoder continues a prompt of 64 tokens by 16, with a static cache; `shapes` are tokens of
    the prompt. Of what reads a text they are its tokens, of what looks at images the batch sizes.
    """
    torch.manual_seed(0)
    architecture, scale, name = ARCHITECTURES[arch], SCALES[size], bundle_name(f"hf-{arch}", size)
    if architecture.work is Work.SEE:
        return _seeing(name, architecture, scale, tuple(shapes) or (scale.images,))
    lengths = tuple(shapes) or (scale.tokens,)
    model = _model(architecture, scale, max(lengths) + NEW_TOKENS)
    texts = [_words(scale, length) for length in lengths]
    if architecture.work is Work.READ:
        read = [{"input_ids": text} for text in texts]
        return Workload(name, model, read, items=lengths[0], unit="tokens")
    called = compile(model)
    generator = Generator(model, called, _words(scale, NEW_TOKENS), room=max(lengths))
    calls = [generator.call(text) for text in texts]
    return Workload(name, called, calls, items=NEW_TOKENS, unit="tokens")


def _seeing(name: str, architecture: Architecture, scale: Scale, counts: Sequence[int]) -> Workload:
    model, side = _model(architecture, scale), (3, scale.pixels, scale.pixels)
    with device():
        images = [torch.randn(count, *side, dtype=model.dtype) for count in counts]
    seen = [{"pixel_values": batch} for batch in images]
    return Workload(name, model, seen, items=counts[0], unit="images")


def _model(architecture: Architecture, scale: Scale, tokens: int = 0) -> Any:
    transformers = importlib.import_module("transformers")
    config = getattr(transformers, architecture.config)(**architecture.numbers(scale, tokens))
    with device():
        model = getattr(transformers, architecture.model)(config)
    return model.eval().to(device(), getattr(torch, scale.dtype))


def _words(scale: Scale, count: int) -> torch.Tensor:
    return torch.randint(FIRST_WORD, scale.vocabulary, (1, count), device=device())
