"""Targets with one disease each, the same ones cured, and a healthy one."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from cachesvc import Workload, compile_regions


class Linear(nn.Module):
    """One product and no kernel, so no C++ is built."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def _workload(model: nn.Module, *calls: Any, **options: Any) -> Workload:
    return Workload(type(model).__name__, model.eval(), calls, **options)


def healthy() -> Workload:
    return _workload(Linear(), (torch.randn(2, 4),))


class Printing(Linear):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        print("half-way")  # noqa: T201 - the disease
        return super().forward(out)


def printing() -> Workload:
    return _workload(Printing(), (torch.randn(2, 4),))


class Branching(Linear):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if out.sum() > 0:
            return out * 2
        return out


def branching() -> Workload:
    return _workload(Branching(), (torch.randn(2, 4),))


def branching_whole() -> Workload:
    """The same, where no graph break is allowed."""
    model = torch.compile(Branching().eval(), fullgraph=True)
    return Workload("whole", model, [(torch.randn(2, 4),)])


def lengths() -> Workload:
    """A batch of another size at each call; torch makes the dimension dynamic at the second."""
    return _workload(Linear(), *((torch.randn(size, 4),) for size in (2, 3, 5, 7)))


def too_many_lengths() -> Workload:
    """As many sizes as to pass the limit, none of them dynamic."""
    model = torch.compile(Linear().eval(), dynamic=False)
    return Workload("lengths", model, [(torch.randn(size, 4),) for size in range(2, 12)])


def too_many_lengths_whole() -> Workload:
    """The same for two versions, where nothing may run as it was written."""
    torch._dynamo.config.recompile_limit = 2
    model = torch.compile(Linear().eval(), dynamic=False, fullgraph=True)
    return Workload("whole", model, [(torch.randn(size, 4),) for size in range(2, 6)])


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
    """A training step through a custom autograd.Function."""
    model = torch.compile(Custom())
    batch = torch.randn(2, 4)

    def step() -> Any:
        model.zero_grad()
        loss = model(batch).square().sum()
        loss.backward()
        return loss

    return Workload("custom", model, [step], training=True)


class Numbered(Linear):
    """A block that reads its own number, as those with a key-value cache do."""

    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.layer_idx >= 0 else x


def regions() -> Workload:
    """More blocks that differ than one function may have versions."""
    model = nn.Sequential(*map(Numbered, range(10))).eval()
    compile_regions(model, classes=[Numbered])
    return _workload(model, (torch.randn(2, 4),))


class Volatile(Linear):
    """A graph with a number in it that is another one in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = int.from_bytes(os.urandom(4), "big") / 2**32

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.offset


def volatile() -> Workload:
    return _workload(Volatile(), (torch.randn(2, 4),))


def volatile_training() -> Workload:
    """A training step whose forward pass is another one in each process."""
    inner = Volatile()
    model = torch.compile(inner)
    batch = torch.randn(2, 4)

    def step() -> Any:
        inner.zero_grad()
        loss = model(batch).square().sum()
        loss.backward()
        return loss

    return Workload("again", model, [step], training=True)


def caches_off() -> Workload:
    """A program that switches Inductor's graph cache off."""
    from torch._inductor import config

    config.fx_graph_cache = False
    return healthy()


class Failing(Linear):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError(f"Unsupported: a batch of {x.shape[0]}")


def failing() -> Workload:
    return _workload(Failing(), (torch.randn(2, 4),))


def never_compiled() -> Workload:
    model = Linear()
    return Workload("plain", model, [lambda: model(torch.ones(2, 4))])


class Quiet(Linear):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if not torch.compiler.is_compiling():
            print("half-way")  # noqa: T201 - what is not compiled may speak
        return super().forward(out)


def printing_cured() -> Workload:
    return _workload(Quiet(), (torch.randn(2, 4),))


class Choosing(Linear):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return torch.where(out.sum() > 0, out * 2, out)


def branching_cured() -> Workload:
    return _workload(Choosing(), (torch.randn(2, 4),))


def lengths_cured() -> Workload:
    batches = [torch.randn(size, 4) for size in (2, 3, 5, 7)]
    for batch in batches:
        torch._dynamo.mark_dynamic(batch, 0)
    return _workload(Linear(), *((batch,) for batch in batches))


class Operating(Linear):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.sick_targets.doubled(super().forward(x))
        return out


def custom_function_cured() -> Workload:
    """The same training step through an operator."""

    @torch.library.custom_op("sick_targets::doubled", mutates_args=())
    def doubled(x: Tensor) -> Tensor:
        return x.clone()

    doubled.register_fake(torch.empty_like)
    doubled.register_autograd(lambda ctx, grad: grad * 2)
    model = torch.compile(Operating())
    batch = torch.randn(2, 4)

    def step() -> Any:
        model.zero_grad()
        loss = model(batch).square().sum()
        loss.backward()
        return loss

    return Workload("custom", model, [step], training=True)
