"""demo:gpt: a small decoder-only transformer written with plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cachesvc.runtime.workloads import Workload

LAYERS = 12
WIDTH = 256
HEADS = 8
TOKENS = 64
VOCABULARY = 4096


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
        layers: int = LAYERS,
        width: int = WIDTH,
        heads: int = HEADS,
        tokens: int = TOKENS,
        vocabulary: int = VOCABULARY,
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


def workload() -> Workload:
    """12 layers, width 256, one prompt of 64 tokens; on the GPU where there is one."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Gpt().eval().to(device)
    ids = torch.randint(0, VOCABULARY, (1, TOKENS), device=device)
    return Workload("demo-gpt", model, ((ids,),))
