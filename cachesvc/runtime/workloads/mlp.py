"""demo:mlp: a few wide linear layers."""

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
    rows: int
    dtype: torch.dtype


_SIZES = {
    TINY: _Size(layers=3, width=64, rows=8, dtype=torch.float32),
    SMALL: _Size(layers=4, width=1024, rows=64, dtype=torch.float32),
    LARGE: _Size(layers=8, width=8192, rows=256, dtype=torch.float16),
}


class Mlp(nn.Module):
    """Rows (batch, width) to rows of the same width."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        for weight in self.parameters():
            if weight.dim() > 1:  # so that rows keep their size, and a training step has an effect
                nn.init.kaiming_normal_(weight)

    def forward(self, rows: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            rows = functional.gelu(layer(rows))
        scores: Tensor = self.layers[-1](rows)
        return scores


def workload(
    size: str = SMALL,
    shapes: Sequence[int] = (),
    train: bool = False,
    compile: Compile = torch.compile,
) -> Workload:
    """4 layers, width 1024, one batch of 64 rows; on the GPU where there is one.

    `shapes` are batch sizes.
    """
    torch.manual_seed(0)
    chosen = _SIZES[size]
    dtype = torch.float32 if train else chosen.dtype
    name = bundle_name("demo-mlp", size, train)
    counts = tuple(shapes) or (chosen.rows,)
    with device():
        model = Mlp(chosen.layers, chosen.width).eval().to(dtype)
        batches = [torch.randn(rows, chosen.width, dtype=dtype) for rows in counts]
        classes = [torch.randint(0, chosen.width, (rows,)) for rows in counts]
    if train:
        pairs = list(zip(batches, classes, strict=True))
        return training_workload(name, model, pairs, compile, unit="rows")
    return Workload(name, model, [(rows,) for rows in batches], items=counts[0], unit="rows")
