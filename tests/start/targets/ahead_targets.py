"""Models whose calls are captured ahead of time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cachesvc import Workload


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


class Broke(nn.Module):
    """Two graphs with a break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        torch._dynamo.graph_break()
        return x @ out.t()


def graph_break() -> Workload:
    return Workload("broke", Broke().eval(), [(torch.randn(2, 4),)])


class Whole(nn.Module):
    """One product and no kernel, so no C++ is built."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def plain() -> Workload:
    return Workload("plain", Whole().eval(), [(torch.randn(2, 4),)])


def beside() -> Workload:
    """A model, and a function that is compiled beside it."""
    model, batch = Whole().eval(), torch.randn(2, 4)
    square = torch.compile(lambda x: x @ x.t())
    compiled = torch.compile(model)

    def call() -> Tensor:
        out: Tensor = square(compiled(batch))
        return out

    return Workload("beside", compiled, [call])


def lying() -> Workload:
    """A model whose functions give something else than it does, where they are loaded."""
    from cachesvc.runtime.aot.function import Function

    honest = Function.__call__

    def lie(self: Function, *args: Any, **kwargs: Any) -> Any:
        return honest(self, *args, **kwargs) + 1

    Function.__call__ = lie  # type: ignore[method-assign]
    return Workload("lying", Whole().eval(), [(torch.randn(2, 4),)])
