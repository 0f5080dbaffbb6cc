"""Which modules of a model are blocks that repeat, and which of them are of one kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cachesvc.core.errors import UsageError
from cachesvc.runtime.blocks import find_kinds


class Block(nn.Module):
    def __init__(self, width: int = 2, *, scale: float = 1.0, index: int = 0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.scale, self.index = scale, index

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x)) * self.scale
        return out


class Tower(nn.Module):
    """Blocks, and what lies before them."""

    def __init__(self, count: int = 2, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.before = nn.Linear(2, 2)
        self.blocks = nn.ModuleList(Block(index=number) for number in range(count))

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        for block in self.blocks:
            x = block(x)
        return x


class Holding(nn.Module):
    """Modules by the names of a model's own attributes."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)


def wrapped(block: nn.Module) -> nn.Module:
    return nn.ModuleDict({"block": block})


def frozen(block: nn.Module) -> nn.Module:
    return block.requires_grad_(requires_grad=False)


def hooked(block: Block) -> Block:
    block.forward = lambda x: x  # type: ignore[method-assign]
    return block


def twice(block: nn.Module) -> list[nn.Module]:
    return [block, block]


def sequential(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules)


def found(model: nn.Module, **how: Any) -> dict[str, list[str]]:
    """The places by kind."""
    kinds = find_kinds(model, **how)
    return {f"{number} {kind.name}": list(kind.blocks) for number, kind in enumerate(kinds)}


MODELS: dict[str, tuple[Callable[[], nn.Module], list[list[str]]]] = {
    "a list": (Tower, [["blocks.0", "blocks.1"]]),
    "a sequence": (lambda: sequential(Block(), nn.Linear(2, 2), Block()), [["0", "2"]]),
    "attributes": (lambda: Holding(one=Block(), two=Block()), [["one", "two"]]),
    "blocks in a dict each": (
        lambda: sequential(*(wrapped(Block(index=n)) for n in range(3))),
        [["0.block", "1.block", "2.block"]],
    ),
    "towers of other lengths": (
        lambda: Holding(text=Tower(2), image=Tower(3)),
        [["text.blocks.0", "text.blocks.1", "image.blocks.0", "image.blocks.1", "image.blocks.2"]],
    ),
    "two widths": (
        lambda: sequential(Block(2), Block(3), Block(2), Block(3)),
        [["0", "2"], ["1", "3"]],
    ),
    "two dtypes": (
        lambda: sequential(Block(), Block(), Block().half(), Block().half()),
        [["0", "1"], ["2", "3"]],
    ),
    "two devices": (
        lambda: sequential(Block(), Block(), Block().to("meta"), Block().to("meta")),
        [["0", "1"], ["2", "3"]],
    ),
    "some frozen": (
        lambda: sequential(frozen(Block()), frozen(Block()), Block(), Block()),
        [["0", "1"], ["2", "3"]],
    ),
    "another attribute": (
        lambda: sequential(*(Block(scale=1.0 + n % 2, index=n) for n in range(4))),
        [["0", "2"], ["1", "3"]],
    ),
    "another forward": (
        lambda: sequential(Block(), hooked(Block()), Block()),
        [["0", "2"]],
    ),
    "attributes that number": (
        lambda: sequential(*(Block(scale=n / 10, index=n) for n in range(4))),
        [["0", "1", "2", "3"]],
    ),
    "towers that are equal": (
        lambda: Holding(text=Tower(3), image=Tower(3)),
        [["text", "image"]],
    ),
    "towers with other settings": (
        lambda: Holding(text=Tower(2), image=Tower(2, causal=True)),
        [["text.blocks.0", "text.blocks.1", "image.blocks.0", "image.blocks.1"]],
    ),
    "nested": (
        lambda: sequential(*(sequential(Block(), Block(), nn.ReLU()) for _ in range(2))),
        [["0", "1"]],
    ),
    "one outside, the others inside": (
        lambda: sequential(Block(), Tower(2), Tower(2)),
        [["1", "2"]],
    ),
    "transformer layers of torch": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(2, 1, 2), num_layers=2, enable_nested_tensor=False
        ),
        [["layers.0", "layers.1"]],
    ),
    "linear layers": (lambda: sequential(*(nn.Linear(2, 2) for _ in range(4))), []),
    "the same block twice": (lambda: sequential(*twice(Block())), []),
    "lists of modules": (
        lambda: Holding(a=nn.ModuleList([nn.ReLU(), nn.ReLU()]), b=nn.ModuleList([nn.ReLU()] * 2)),
        [],
    ),
    "all different": (lambda: sequential(Block(2), Block(3), Block(4)), []),
}


@pytest.mark.parametrize("name", MODELS)
def test_kinds(name: str) -> None:
    """The outermost modules that repeat, by class, tensors and attributes; not those alone."""
    build, kinds = MODELS[name]
    assert list(found(build()).values()) == kinds


def test_what_numbers_blocks_is_said() -> None:
    """An attribute that no two blocks share makes no kinds, and is named; others are not."""
    (kind,) = find_kinds(sequential(*(Block(index=n) for n in range(3))))
    assert kind.differ == ("index",)
    (kind,) = find_kinds(sequential(Block(), Block()))
    assert kind.differ == ()


def test_the_structure_tells_kinds_apart() -> None:
    """It is equal for equal blocks of two models, also with other weights and numbers."""
    narrow, wide = find_kinds(sequential(Block(2), Block(2), Block(3), Block(3)))
    (again,) = find_kinds(sequential(*(Block(2, index=n) for n in range(4))))
    assert narrow.structure != wide.structure
    assert narrow.structure != again.structure  # the index is part of the first one's
    (numbered,) = find_kinds(sequential(*(Block(2, index=5 + n) for n in range(2))))
    assert numbered.structure == again.structure


def test_classes_by_hand() -> None:
    """By class or name, the outermost ones, also where there is one of a kind."""
    model = sequential(Block(2), Block(3), Block(3), Tower())
    assert found(model, classes=[Block]) == {
        "0 Block": ["0", "3.blocks.0", "3.blocks.1"],
        "1 Block": ["1", "2"],
    }
    assert found(model, classes=["Tower"]) == {"0 Tower": ["3"]}
    assert list(found(model, classes=["Tower", Block]).values())[-1] == ["3"]
    assert found(sequential(nn.Linear(2, 2), nn.ReLU()), classes=["Linear"]) == {"0 Linear": ["0"]}


def test_a_class_that_is_not_there() -> None:
    """The error names those that are."""
    with pytest.raises(UsageError, match="Sequential holds no Blok: choose from Block, Linear"):
        find_kinds(sequential(Block()), ["Blok"])


def test_lazy_parameters() -> None:
    """Blocks whose shapes come with the first call are of one kind."""
    model = sequential(*(sequential(nn.LazyLinear(2), nn.ReLU()) for _ in range(2)))
    assert list(found(model).values()) == [["0", "1"]]


def test_a_scripted_module_is_no_block() -> None:
    """torch does not compile what was scripted."""
    with pytest.warns(DeprecationWarning, match="jit.script"):
        parts = [torch.jit.script(sequential(nn.ReLU(), nn.ReLU())) for _ in range(2)]
    assert found(sequential(*parts)) == {}
