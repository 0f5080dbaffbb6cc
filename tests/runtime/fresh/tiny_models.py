"""Models that compile in a second or two: importable by name in every process of a test."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Plain(nn.Module):
    """One product and no kernel, so no C++ is built."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(4, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


class Other(nn.Module):
    """Another graph than Plain's, also without a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3, bias=False)
        self.second = nn.Linear(3, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x))
        return out


class Fused(nn.Module):
    """One kernel, so C++ is built."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x)).sum()


class Failing(Plain):
    """Raises in its forward, in the middle of what is compiled."""

    def forward(self, x: Tensor) -> Tensor:
        raise ValueError(f"no batch of {x.shape[0]}")


def square(x: Tensor) -> Tensor:
    return x @ x


def ones(*shape: int) -> Tensor:
    return torch.ones(*(shape or (2, 4)))
