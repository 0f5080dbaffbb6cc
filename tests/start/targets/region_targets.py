"""Models whose repeated blocks are compiled as regions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cachesvc import Workload, compile_regions


class Block(nn.Module):
    """Two products and no kernel, so no C++ is built."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 4)
        self.index = index

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x))
        return out


class Indexed(Block):
    """A block whose code reads which one it is, so that each is traced for itself."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.index >= 0 else x


class Net(nn.Module):
    def __init__(self, kind: type[Block], count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(kind(number) for number in range(count))
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.last(x)
        return out


def regions() -> Workload:
    model = Net(Block, 4).eval()
    compile_regions(model)
    return Workload("regions", model, [(torch.randn(2, 4),)])


def loaded_later() -> Workload:
    """The same model, whose weights come after it was compiled, as a checkpoint would."""
    weights = Net(Block, 4).state_dict()
    workload = regions()
    workload.model.load_state_dict(weights)
    return workload


def indexed_training() -> Workload:
    """A training step through twelve blocks that are traced each for itself."""
    model = Net(Indexed, 12)
    compile_regions(model)
    batch = torch.randn(2, 4)

    def step() -> Any:
        model.zero_grad()
        loss = model(batch).square().sum()
        loss.backward()
        return {"loss": loss, "gradients": [p.grad for p in model.parameters()]}

    return Workload("indexed", model, [step], training=True)


def llama() -> Workload:
    """A prompt into a static cache: each layer reads its own number, and there are sixteen."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=16, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=64, max_position_embeddings=32,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    compile_regions(model)
    prompt = torch.randint(0, 64, (1, 8))

    def prefill() -> Any:
        cache = StaticCache(config=config, max_cache_len=16)
        return model(input_ids=prompt, past_key_values=cache).logits

    return Workload("llama-regions", model, [prefill])
