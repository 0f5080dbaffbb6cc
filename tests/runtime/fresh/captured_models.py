"""Models whose calls are captured: importable by name in every process of a test."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Row(nn.Linear):
    """A module of torch's, but for the tuple."""

    def forward(self, x: Tensor) -> Any:
        return (super().forward(x),)


class Decorated(nn.Module):
    """Its forward is a function of torch's around its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Any:
        return (self.inner(x),)


class Views(Decorated):
    """Gives back its input, a part of it, and a part of a parameter."""

    def forward(self, x: Tensor) -> Any:
        return self.inner(x), x, x[1:], self.inner.weight[1:], x.detach()


class Branch(nn.Module):
    """Asks a tensor which way to go."""

    def forward(self, x: Tensor) -> Any:
        return (x + 1,) if x.sum() > 0 else (x - 1,)


class Nothing(nn.Module):
    """Computes nothing."""

    def forward(self, x: Tensor) -> Any:
        return (5,)


class Kernel(Decorated):
    """One kernel, so C++ is built."""

    def forward(self, x: Tensor) -> Any:
        return (torch.relu(self.inner(x)).sum(),)


class Constant(nn.Module):
    """Holds a tensor in its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4)

    def forward(self, x: Tensor) -> Any:
        return (self.bag(torch.tensor([[1, 2], [3, 4]])) + x,)


class Shared(nn.Module):
    """Writes to one of two inputs."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        x.add_(1)
        return (x + y,)


def calls() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """Modules and arguments by name, made anew."""
    x, line = torch.randn(2, 4), torch.arange(6.0)
    return {
        "linear": (Row(4, 4), (x,)),
        "decorated": (Decorated(), (x,)),
        "views": (Views(), (x,)),
        "branch": (Branch(), (x,)),
        "nothing": (Nothing(), (x,)),
        "kernel": (Kernel(), (x,)),
        "constant": (Constant(), (x,)),
        "shared": (Shared(), (line[:4], line[2:])),
    }
