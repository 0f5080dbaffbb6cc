"""What a ledger writes down of constants, and that a call with another one is told from it."""

from __future__ import annotations

import enum
import json
import operator
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from cachesvc.runtime.aot import ledger as ledgers
from cachesvc.runtime.aot.ledger import Ledger, Unwritten, ledger_of


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Model(nn.Module):
    def __init__(self, kept: Any = None) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: Any) -> Any:
        return x


def made(kept: Any, kind: str = "CONSTANT_MATCH") -> Ledger:
    """Of a call in which one attribute was taken for constant; as a unit brings it back."""
    guard = SimpleNamespace(name="self.kept", guard_type=kind, value=kept, has_value=True)
    ledger = ledger_of([guard], {}, Model.forward, (Model(kept), 1), {})
    return ledgers.from_json(ledger.code, json.loads(json.dumps(ledgers.to_json(ledger))))


def difference(ledger: Ledger, kept: Any) -> str:
    return ledger.first_difference(Model.forward, (Model(kept), 1), {})


CONSTANTS: dict[str, tuple[Any, Any]] = {
    "dtype": (torch.bfloat16, torch.float16),
    "device": (torch.device("cpu"), torch.device("meta")),
    "layout": (torch.strided, torch.sparse_coo),
    "memory format": (torch.contiguous_format, torch.channels_last),
    "enum": (Level.LOW, Level.HIGH),
    "tuple": ((1, 2.0), (1, 3.0)),
    "tuple and list": ((1, 2), [1, 2]),
    "truth in a tuple": ((True,), (1,)),
    "size": (torch.Size([1]), (1,)),
    "set": (frozenset({"a", "b"}), frozenset({"a"})),
    "complex": (1j, 2j),
    "range": (range(3), range(4)),
    "slice": (slice(0, 2), slice(0, 3)),
    "zero": (0.0, -0.0),
    "not a number": (float("nan"), 1.0),
    "truth": (True, 1),
    "bytes": (b"a", b"b"),
    "built-in": (operator.add, operator.mul),
    "many items": (tuple(range(200)), tuple(range(201))),
    "code": ((lambda x: x + 1).__code__, (lambda x: x + 2).__code__),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_another_constant_is_told(name: str) -> None:
    """Of all the kinds that Dynamo compares by value, also where Python calls the two equal."""
    before, now = CONSTANTS[name]
    ledger = made(before)
    assert difference(ledger, before) == ""
    assert difference(ledger, now)


@pytest.mark.parametrize("name", ["dtype", "device", "enum"])
def test_a_constant_that_is_one_object_is_told(name: str) -> None:
    """Dynamo compares some by identity, which is another in each process."""
    before, now = CONSTANTS[name]
    assert difference(made(before, "ID_MATCH"), now)


@pytest.mark.parametrize("value", [namedtuple("Pair", "a b")(1, 2), [object()]])
def test_what_cannot_be_written_down_is_no_constant(value: Any) -> None:
    """Then there is no ledger, and no function for the call."""
    with pytest.raises(Unwritten, match=r"self\.kept was taken for constant"):
        made(value)


TENSORS: dict[str, Any] = {
    "shape": torch.ones(3),
    "dtype": torch.ones(2, dtype=torch.float64),
    "gradients": torch.ones(2, requires_grad=True),
    "parameter": nn.Parameter(torch.ones(2), requires_grad=False),
    "gone": None,
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_another_kind_is_told(name: str) -> None:
    """One that the model's code has written, though no graph takes it: its shape, or that it is
    there, may be in the code."""
    ledger = made(torch.ones(2), "TENSOR_MATCH")
    assert ledger.tensors == ("self.kept",)
    assert difference(ledger, torch.zeros(2)) == ""
    assert difference(ledger, TENSORS[name])


def test_a_tensor_that_is_not_found_again_makes_no_ledger() -> None:
    """As one among the globals of code around what was captured."""
    guard = SimpleNamespace(
        name="G['MASK']", guard_type="TENSOR_MATCH", value=torch.ones(2), has_value=True
    )
    with pytest.raises(Unwritten, match="MASK"):
        ledger_of([guard], {}, Model.forward, (Model(), 1), {})


def test_a_value_that_no_ledger_holds_is_a_difference() -> None:
    """And no error of the call in which it is met."""
    assert "object" in difference(made(1.0), object())
