"""demo:gpt: a decoder-only transformer written with plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cachesvc.runtime.workloads import Workload
from cachesvc.runtime.workloads.arguments import Compile
from cachesvc.runtime.workloads.device import device
from cachesvc.runtime.workloads.sizes import LARGE, SMALL, TINY, bundle_name
from cachesvc.runtime.workloads.training import training_workload


@dataclass(frozen=True, slots=True)
class _Size:
    layers: int
    width: int
    heads: int
    tokens: int
    vocabulary: int
    dtype: torch.dtype


_SIZES = {
    TINY: _Size(2, 32, 2, 16, 128, torch.float32),
    SMALL: _Size(12, 256, 8, 64, 4096, torch.float32),
    LARGE: _Size(24, 2048, 16, 512, 32000, torch.float16),
}


class Attention(nn.Module):
    """Causal self-attention over (batch, tokens, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, tokens, width = hidden.shape
        split = self.project_in(hidden).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.project_out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return joined


class Layer(nn.Module):
    """Attention and a feed-forward part, each behind a norm and around a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_norm = nn.LayerNorm(width)
        self.feed_in = nn.Linear(width, 4 * width)
        self.feed_out = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        fed: Tensor = self.feed_out(functional.gelu(self.feed_in(self.feed_norm(hidden))))
        return hidden + fed


class Gpt(nn.Module):
    """Token ids (batch, tokens) to logits (batch, tokens, vocabulary)."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        tokens: int,
        vocabulary: int,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.token(ids) + self.position[: ids.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden)
        scores: Tensor = self.logits(self.norm(hidden))
        return scores


def workload(
    size: str = SMALL,
    shapes: Sequence[int] = (),
    train: bool = False,
    compile: Compile = torch.compile,
) -> Workload:
    """12 layers, width 256, one prompt of 64 tokens; on the GPU where there is one.

    `shapes` are tokens of a prompt; in training, of each text, whose next tokens are learned.
    """
    torch.manual_seed(0)
    chosen = _SIZES[size]
    lengths = tuple(shapes) or (chosen.tokens,)
    with device():
        model = Gpt(
            layers=chosen.layers,
            width=chosen.width,
            heads=chosen.heads,
            tokens=max(chosen.tokens, *lengths),
            vocabulary=chosen.vocabulary,
        )
        model = model.eval().to(torch.float32 if train else chosen.dtype)
        texts = [torch.randint(0, chosen.vocabulary, (1, length)) for length in lengths]
    name = bundle_name("demo-gpt", size, train)
    if train:
        pairs = [(text, text.roll(-1, 1)) for text in texts]
        return training_workload(name, model, pairs, compile, unit="tokens")
    return Workload(name, model, [(text,) for text in texts], items=lengths[0], unit="tokens")
