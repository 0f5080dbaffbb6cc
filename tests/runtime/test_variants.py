"""A workload compiled as a variant says, or an error: a label must be true."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cachesvc.core.errors import UsageError
from cachesvc.core.variant import Variant
from cachesvc.runtime.backend import compile_options, is_compiled
from cachesvc.runtime.variants import Compiler
from cachesvc.runtime.workloads import Workload

ONES = (torch.ones(2, 4),)
DYNAMIC = Variant(dynamic=True)
REGIONS = Variant(regions=True)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.down(self.up(x).relu())
        return found


def _blocks() -> nn.Sequential:
    return nn.Sequential(Block(), Block())


def test_the_default_is_left_to_the_call() -> None:
    """As every start of a model that nobody has compiled."""
    workload = Workload("w", _blocks(), [ONES])
    assert Compiler(Variant()).applied(workload) is workload
    assert not is_compiled(workload.model)


def test_a_mode_is_applied() -> None:
    """To the model, which stays what the workload is of."""
    applied = Compiler(DYNAMIC).applied(Workload("w", _blocks(), [ONES]))
    assert compile_options(applied.model)["dynamic"] is True
    assert applied.name == "w"


def test_regions_are_applied_in_place() -> None:
    """And told."""
    compiler, model = Compiler(REGIONS), _blocks()
    assert compiler.applied(Workload("w", model, [ONES])).model is model
    assert is_compiled(model)
    (note,) = compiler.notes
    assert "2 x Block" in note


def test_eager_gives_back_what_it_is_given() -> None:
    """A workload that compiles by itself with it compiles nothing."""
    compiler, model = Compiler(None), _blocks()
    assert compiler(model) is model
    assert compiler.applied(Workload("w", model, [lambda: model(*ONES)])).model is model
    assert not is_compiled(model)


def test_a_workload_that_compiles_with_it() -> None:
    """Modes reach what its calls call."""
    compiler = Compiler(DYNAMIC)
    step = compiler(_blocks())
    workload = Workload("w", step, [lambda: step(*ONES)])
    assert compiler.applied(workload) is workload
    assert compile_options(step)["dynamic"] is True


def test_a_workload_that_compiles_a_part_with_it() -> None:
    """And leaves its model to the caller: that is compiled, too."""
    compiler = Compiler(DYNAMIC)
    compiler(nn.Linear(2, 2))
    applied = compiler.applied(Workload("w", _blocks(), [ONES]))
    assert compile_options(applied.model)["dynamic"] is True


@pytest.mark.parametrize("variant", [DYNAMIC, REGIONS])
@pytest.mark.parametrize("calls", ["arguments", "callable"])
def test_a_workload_that_compiles_by_itself(variant: Variant, calls: str) -> None:
    """Nothing but its own settings can be measured; for the default a note says so."""
    model: Any = torch.compile(_blocks())
    given = [ONES] if calls == "arguments" else [lambda: model(*ONES)]
    with pytest.raises(UsageError, match="a parameter `compile`"):
        Compiler(variant).applied(Workload("w", model, given))
    compiler = Compiler(Variant())
    compiler.applied(Workload("w", model, given))
    assert compiler.notes == ["the workload compiles by itself: its own mode and options hold"]


def test_no_regions() -> None:
    """Neither a model without repeated blocks, nor a function: both would be compiled whole, or
    not at all, under a label that says otherwise."""
    with pytest.raises(UsageError, match="no block"):
        Compiler(REGIONS).applied(Workload("w", nn.Linear(4, 4), [ONES]))
    with pytest.raises(UsageError, match="there are no regions to compile"):
        Compiler(REGIONS).applied(Workload("w", nn.Sequential(Block()), [ONES]))
    with pytest.raises(UsageError, match="no regions"):
        Compiler(REGIONS).applied(Workload("w", torch.sin, [ONES]))


def test_options_that_torch_refuses() -> None:
    """Named in a sentence, whoever compiles: not the end of a traceback."""
    with pytest.raises(UsageError, match=r"torch.compile refuses nothing=1: .*nothing"):
        Compiler(Variant(options=(("nothing", 1),))).applied(Workload("w", _blocks(), [ONES]))
