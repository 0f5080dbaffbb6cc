"""Targets of builds: what a user's module gives to `tccache build`."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cachesvc import Workload


class Linear(nn.Module):
    """One product and no kernel, so no C++ is built."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(4, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def linear() -> Workload:
    """Arguments by place and by name."""
    return Workload("linear", Linear().eval(), [(torch.randn(2, 4),), {"x": torch.randn(2, 4)}])


class Broken(Linear):
    """A model whose second batch is too many."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 2:
            raise ValueError(f"no batch\nof {x.shape[0]}")
        return super().forward(x)


def broken() -> Workload:
    return Workload("broken", Broken(), [(torch.ones(2, 4),), (torch.ones(3, 4),)])


class Lying(Linear):
    """A model that gives something else once it is compiled."""

    def forward(self, x: Tensor) -> Any:
        out = super().forward(x)
        return {"scores": 2 * out if torch.compiler.is_compiling() else out}


def lying() -> Workload:
    return Workload("lying", Lying(), [(torch.ones(2, 4),)])


def never_compiled() -> Workload:
    return Workload("eager", torch.compile(Linear(), backend="eager"), [(torch.ones(2, 4),)])


def calling_what_is_not_compiled() -> Workload:
    model = Linear()
    return Workload("plain", model, [lambda: model(torch.ones(2, 4))])


class Volatile(Linear):
    """A model that is another one in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = int.from_bytes(os.urandom(4), "big") / 2**32

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 0 if self.offset < 0 else super().forward(x)


def volatile() -> Workload:
    return Workload("volatile", Volatile(), [(torch.ones(2, 4),)])


def killed() -> Workload:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def only_here() -> Workload:
    """Reads a file of the working directory."""
    with open("width.txt") as file:
        width = int(file.read())
    return Workload("here", Linear(width), [(torch.ones(2, 4),)])


class Broke(Linear):
    """Two graphs with a break between them."""

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        torch._dynamo.graph_break()
        return super().forward(out)


def graph_break() -> Workload:
    return Workload("broke", Broke().eval(), [(torch.randn(2, 4),)])


class Doubled(torch.autograd.Function):
    """An identity whose gradient is doubled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2


class Custom(Linear):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Doubled.apply(super().forward(x))  # type: ignore[no-untyped-call]
        return out


def custom_function() -> Workload:
    """A training step through a custom autograd.Function, for which AOTAutograd stores nothing."""
    model = torch.compile(Custom())
    batch = torch.randn(2, 4)

    def step() -> Any:
        model.zero_grad()
        loss = model(batch).square().sum()
        loss.backward()
        return {"loss": loss, "gradients": [p.grad for p in model.parameters()]}

    return Workload("custom", model, [step], training=True)


def two_models() -> Workload:
    encoder, decoder = torch.compile(Linear()), torch.compile(Linear(8))
    batch = torch.randn(3, 4)

    def encode() -> Any:
        return encoder(batch)

    def both() -> Any:
        return decoder(encoder(batch))

    return Workload("pair", {"encoder": encoder, "decoder": decoder}, [encode, both])


def dropping() -> Workload:
    """A training step with dropout: its outputs depend on random numbers."""
    model = torch.compile(nn.Sequential(Linear(64), nn.Dropout(0.5)))
    batch = torch.randn(8, 4)

    def step() -> Any:
        out = model(batch)
        out.sum().backward()
        return {"out": out, "batch": batch}

    return Workload("dropping", model, [step], training=True)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.norm(self.first(x)))


def resnet_training() -> Workload:
    """Two steps of a small residual network: forward, backward, compiled optimizer."""
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = torch.compile(nn.Sequential(plain, nn.Linear(8, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    update = torch.compile(optimizer.step)
    images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])

    def step() -> Any:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        update()
        return {"loss": loss.item(), "weights": [p.detach() for p in model.parameters()]}

    return Workload("resnet", model, [step, step], training=True)


def llama() -> Workload:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=64, max_position_embeddings=32,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    return Workload("llama", model, [{"input_ids": torch.randint(0, 64, (1, 8))}])


def bert() -> Workload:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=64, max_position_embeddings=32,
    )  # fmt: skip
    return Workload("bert", BertModel(config).eval(), [(torch.randint(0, 64, (1, 8)),)])


def vit() -> Workload:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        image_size=16, patch_size=8,
    )  # fmt: skip
    return Workload("vit", ViTModel(config).eval(), [(torch.randn(1, 3, 16, 16),)])
