"""What stands in for Dynamo's own functions does what they do."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cachesvc.runtime.aot import stand_ins

UTILS = "torch._dynamo.utils"


class Holder:
    """Says no to whoever sets an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def _set(utils: Any) -> object:
    holder = Holder()
    utils.object_setattr_ignore_descriptor(holder, "a", 1)
    utils.object_setattr_ignore_descriptor(holder, "b", 2)
    utils.object_delattr_ignore_descriptor(holder, "b")
    return vars(holder)


def _module(utils: Any) -> object:
    module = utils.nn_module_new(torch.nn.Linear)
    return type(module), sorted(vars(module))


def _cell(utils: Any) -> object:
    cell = utils.make_cell()
    cell.cell_contents = 5
    return type(cell) is types.CellType, cell.cell_contents


USES: dict[str, Callable[[Any], object]] = {
    "attributes": _set,
    "items of a dict": lambda u: (u.dict_getitem({"a": 1}, "a"), u.dict_keys_getitem({1: 2}, 0)),
    "items of a list": lambda u: u.list_getitem([3, 4], 1),
    "items of a set": lambda u: u.set_getitem({7}, 0),
    "items that an iterator will give": lambda u: u.tuple_iterator_getitem(iter((1, 2, 3)), 1),
    "the next item": lambda u: u.iter_next(iter([9])),
    "new objects": lambda u: (
        type(u.object_new(Holder)),
        u.dict_new(dict),
        u.tuple_new(tuple, [1]),
    ),
    "a new module": _module,
    "a new cell": _cell,
    "a tensor": lambda u: (
        u.call_size(torch.ones(2, 3), 1),
        u.call_stride(torch.ones(2, 3), 0),
        u.call_storage_offset(torch.ones(4)[1:]),
    ),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_they_do_what_dynamo_does(use: Callable[[Any], object]) -> None:
    """The same call gives the same."""
    assert use(stand_ins.stand_in(UTILS)) == use(importlib.import_module(UTILS))


def test_measuring_does_nothing() -> None:
    """What was entered is left again."""
    utils = stand_ins.stand_in(UTILS)
    assert utils.record_pregraph_bytecode_exit(utils.record_pregraph_bytecode_enter()) is None


def test_what_has_no_stand_in_is_known() -> None:
    """Code that asks for one more name gets Dynamo itself, and so does code of another module."""
    assert stand_ins.knows(UTILS, {"iter_next", "make_cell"})
    assert not stand_ins.knows(UTILS, {"iter_next", "build_stream"})
    assert not stand_ins.knows(UTILS, {""})
    assert not stand_ins.knows("torch._dynamo.variables.functions", {"_create_nested_fn"})
