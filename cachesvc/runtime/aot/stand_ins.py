"""What captured code asks of Dynamo's own modules, without importing them, which takes seconds.

Each does what Dynamo's function of that name does in torch 2.7 to 2.13. Code that asks for anything
else imports Dynamo: right, and slower.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import torch

_UTILS = "torch._dynamo.utils"


def knows(module: str, names: Collection[str]) -> bool:
    """Whether there is something to stand in for all these names of a module."""
    return module in _STAND_INS and set(names) <= _STAND_INS[module].keys()


def stand_in(module: str) -> Any:
    """What stands in for a module. Raises KeyError for one that is not known."""
    return SimpleNamespace(**_STAND_INS[module])


def _set_attribute(owner: Any, name: str, value: Any) -> None:
    object.__getattribute__(owner, "__dict__")[name] = value


def _delete_attribute(owner: Any, name: str) -> None:
    del object.__getattribute__(owner, "__dict__")[name]


def _key(mapping: Any, index: int) -> Any:
    return next(itertools.islice(dict.keys(mapping), index, index + 1))


def _ahead(iterator: Any, index: int) -> Any:
    _, (items,), start = iterator.__reduce__()
    return items[start + index]


def _new_module(kind: Any) -> Any:
    module = object.__new__(kind)
    torch.nn.Module.__init__(module)
    return module


def _mode(index: int) -> Any:
    return torch._C._get_function_stack_at(index)


_STAND_INS: dict[str, dict[str, Any]] = {
    _UTILS: {
        # To measure, which nobody asked for here.
        "record_pregraph_bytecode_enter": lambda: None,
        "record_pregraph_bytecode_exit": lambda entered: None,
        # To get at something past what its class defines.
        "object_setattr_ignore_descriptor": _set_attribute,
        "object_delattr_ignore_descriptor": _delete_attribute,
        "dict_getitem": dict.__getitem__,
        "dict_keys_getitem": _key,
        "list_getitem": list.__getitem__,
        "set_getitem": lambda items, index: list(items)[index],
        "tuple_iterator_getitem": _ahead,
        "iter_next": next,
        # To make something anew.
        "dict_new": dict.__new__,
        "tuple_new": tuple.__new__,
        "object_new": object.__new__,
        "nn_module_new": _new_module,
        "make_cell": types.CellType,
        # To ask a tensor or torch.
        "call_size": lambda tensor, index: tensor.size(index),
        "call_stride": lambda tensor, index: tensor.stride(index),
        "call_storage_offset": lambda tensor: tensor.storage_offset(),
        "get_torch_function_mode_stack_at": _mode,
    },
}
