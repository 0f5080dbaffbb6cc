"""A small model that takes constants from everywhere that Python has: each moves its output."""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import torch
from torch import nn

from benchmarks.probes import odd_parts as parts
from benchmarks.probes.odd_parts import LOCAL, Settings, activation

SCALE = 1.0625


class Block(nn.Module):
    class_constant = 0.375
    described = parts.Descriptor(0.875)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.gelu = nn.GELU()
        self.dropout = nn.Dropout(0.1)
        self.drop_path = 0.03125

    @property
    def computed(self) -> float:
        return float(self.class_constant * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.dropout(self.gelu(self.linear(self.norm(x))))
        moved: torch.Tensor = y * (1 - self.drop_path) + self.computed + self.described
        return moved


class Odd(nn.Module):
    """Every attribute is of another kind."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(width, width, bias=False)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.named = nn.ModuleDict({"a": nn.Linear(width, width), "b": nn.Tanh()})
        self.head = nn.Linear(width, width, bias=False)
        self.head.weight = self.embed.weight
        self.table: torch.Tensor
        self.register_buffer("table", torch.linspace(0, 1, width))
        self.plain_tensor = [torch.full((width,), 0.5)]
        self.settings = Settings()
        self.slotted = parts.Slotted()
        self.private = parts.Private()
        self.held = parts.Held()
        self.nested: dict[str, Any] = {"list": [1.0, {"deep": (2.0, [3.0])}], "set": {"on"}}
        self.levels = [0.5, 1.5]
        self.partial = functools.partial(parts.shifted, by=0.25)
        self.closed = parts.closed(1.5, [0.75])
        self.act = activation
        self.activation_path = nn.functional.relu
        self.fast_path = True
        self.steps = 2
        self.deep: dict[str, Any] = {"a": {"b": {"c": {"d": {"e": {"f": {"g": [7.0]}}}}}}}
        self.local_hook: Any = None

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None = None,
        scale: float = 1.0,
        *,
        extra: dict[str, Any] | None = None,
    ) -> dict[str, torch.Tensor]:
        y = self.embed(x) * SCALE + parts.BIAS * LOCAL
        for block in self.blocks:
            y = block(y)
        for layer in self.named.values():
            y = layer(y)
        y = self.act(y) + self.table + self.plain_tensor[0]
        y = self.activation_path(y) if self.fast_path else torch.sigmoid(y)
        y = y * self.settings.scale + self.settings.extras["shift"]
        if self.settings.mode is parts.Mode.HIGH:
            y = y * 3
        y = y * self.slotted.factor * self.private.hidden()
        y = self.held.apply(y)
        y = y + self.nested["list"][0] * self.nested["list"][1]["deep"][1][0]
        y = y + len(self.nested["set"]) + sum(self.levels)
        y = self.closed(self.partial(y)) * parts.NAMESPACE.power
        y = parts.with_attribute(y) + parts.cached(4)
        y = y + parts.TABLE["inner"]["right"][0] + parts.ORDER["second"]
        if "doubled" in parts.FLAGS:
            y = y * 2
        for _ in range(self.steps):
            y = parts.REGISTRY["plain"](y, limit=50.0)
        y = y + self.deep["a"]["b"]["c"]["d"]["e"]["f"]["g"][0] + math.sqrt(2.0) + len(parts.SIZES)
        from benchmarks.probes.odd_parts import LATE

        y = y * LATE if os.environ.get("PROBED_ODD_MODEL", "1") == "1" else y - LATE
        if hasattr(self.held, "extra") or "extra" in self.nested:
            y = y * 3
        if mask is not None:
            y = y * mask
        if extra:
            y = y + extra["amount"]
        hidden = y * scale
        return {
            "out": self.head(nn.functional.gelu(hidden) + torch.softmax(hidden, -1)),
            "hidden": hidden,
        }
