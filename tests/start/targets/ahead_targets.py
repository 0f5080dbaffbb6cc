"""Models whose calls are captured ahead of time."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """One of several, which differ in nothing that is used."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 4)
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x))
        return out


class Numbered(Block):
    """A block that computes with its number."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.second.weight @ self.first.weight
        return torch.addmm(super().forward(x), x, weight, alpha=self.number)


class Stack(nn.Module):
    """Blocks one after the other."""

    def __init__(self, kind: type[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(kind(number) for number in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x
