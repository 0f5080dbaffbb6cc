"""What an output is made of: tensors and plain values, each with its path."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from cachesvc.core.outputs import BOOL, FLOAT, INTEGER, TEXT

Leaf = torch.Tensor | bool | int | float | str
Leaves = list[tuple[str, Leaf]]

ROOT = "output"
_MAX_DEPTH = 8
_NO_STATE = (
    torch.nn.Module,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.GeneratorType,
)


def leaves(output: Any, root: str = ROOT) -> Leaves:
    """The tensors and plain values in an output, in order, each with its path.

    Looked into are sequences, mappings, dataclasses and named tuples; of other objects, such as a
    cache of keys and values, only the tensors count: the rest is state and no result. None counts
    for nothing. To a depth of eight; what holds itself ends there.
    """
    return list(_Walk().visit(root, output, _MAX_DEPTH, plain=True))


class _Walk:
    def __init__(self) -> None:
        self._open: set[int] = set()
        self._objects: set[int] = set()

    def visit(
        self, path: str, value: Any, depth: int, *, plain: bool
    ) -> Iterator[tuple[str, Leaf]]:
        if type(value).__module__ == "numpy":
            value = torch.as_tensor(value)
        if isinstance(value, torch.Tensor):
            yield path, value
        elif isinstance(value, bool | int | float | str):
            if plain:
                yield path, value
        elif value is not None and depth and id(value) not in self._open:
            self._open.add(id(value))
            parts = _parts(path, value)
            plain = plain and parts is not None
            for inner, item in self._attributes(path, value) if parts is None else parts:
                yield from self.visit(inner, item, depth - 1, plain=plain)
            self._open.discard(id(value))

    def _attributes(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Those of an object without structure of its own; each object once."""
        if isinstance(value, _NO_STATE) or id(value) in self._objects:
            return
        self._objects.add(id(value))
        for name, item in getattr(value, "__dict__", {}).items():
            yield f"{path}.{name}", item


def _parts(path: str, value: Any) -> Iterable[tuple[str, Any]] | None:
    """What a structure holds; None for any other object."""
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f"{path}.{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | range):
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [(f"{path}.{name}", getattr(value, name, None)) for name in names]
    return None


def copied(output: Any) -> Leaves:
    """The leaves, tensors copied into plain ones on the CPU: nothing changes them any more."""
    return [(path, _on_cpu(leaf)) for path, leaf in leaves(output)]


def _on_cpu(leaf: Leaf) -> Leaf:
    if not isinstance(leaf, torch.Tensor) or leaf.is_meta:
        return leaf
    return strided(leaf).to("cpu", copy=True)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor of the same values; of a distributed one this process's part."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_nested:
        return torch.cat([part.reshape(-1) for part in tensor.unbind()])
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def dtype_name(leaf: Leaf) -> str:
    """The dtype as torch names it, without `torch.`; for a plain value the name of its type."""
    if isinstance(leaf, torch.Tensor):
        return str(leaf.dtype).removeprefix("torch.")
    kinds = ((bool, BOOL), (int, INTEGER), (float, FLOAT), (str, TEXT))
    return next(name for kind, name in kinds if isinstance(leaf, kind))


def shape_of(leaf: Leaf) -> tuple[int, ...]:
    """The shape of a tensor; a text has one dimension, any other plain value none."""
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape)
    return (len(leaf),) if isinstance(leaf, str) else ()
