"""What the odd model takes from another module: constants, functions, classes."""

from __future__ import annotations

import enum
import functools
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy
import torch

BIAS = 0.5
TABLE: dict[str, Any] = {"left": 1.5, "inner": {"right": [0.25, 0.75]}}
WEIGHTS = numpy.array([1.0, 2.0, 3.0])
SIZES = deque([1.0, 2.0])
ORDER = OrderedDict(first=0.5, second=2.0)
FLAGS = {"doubled"}
LOCAL = 3.0
LATE = 0.875


class Mode(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Settings:
    scale: float = 2.0
    mode: Mode = Mode.LOW
    extras: dict[str, float] = field(default_factory=lambda: {"shift": 0.1})


@dataclass(slots=True)
class Slotted:
    factor: float = 1.25


class Private:
    __slots__ = ("__hidden",)

    def __init__(self) -> None:
        self.__hidden = 1.75

    def hidden(self) -> float:
        return self.__hidden


class Base:
    offset = 0.125

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.offset


class Other(Base):
    offset = 0.625


class Held(Base):
    pass


class Descriptor:
    def __init__(self, value: float) -> None:
        self.value = value

    def __get__(self, owner: object, kind: type | None = None) -> float:
        return self.value


def activation(x: torch.Tensor, slope: float = 0.1, *, limit: float = 4.0) -> torch.Tensor:
    return torch.where(x > 0, x, x * slope).clamp(max=limit)


def with_attribute(x: torch.Tensor) -> torch.Tensor:
    doubled: torch.Tensor = x * with_attribute.gain  # type: ignore[attr-defined]
    return doubled


with_attribute.gain = 1.125  # type: ignore[attr-defined]


@functools.cache
def cached(width: int) -> float:
    return BIAS + width / 100


def closed(amount: float, box: list[float]):  # type: ignore[no-untyped-def]
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * amount + box[0]

    def change(value: float) -> None:
        nonlocal amount
        amount = value

    inner.change = change  # type: ignore[attr-defined]
    return inner


def shifted(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


NAMESPACE = SimpleNamespace(power=1.5)
REGISTRY = {"plain": activation}
