"""Values of a model's attributes as text that is equal in every process.

What a graph can bake in is described; what is volatile (addresses, salted hashes, paths) is not.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.runtime.sources import source_digest

_MAX_DEPTH = 6
_MAX_ITEMS = 2000
# Names whose values differ between equal models: salted or address-based hashes, places on disk.
_VOLATILE = re.compile(r"(_hash|name_or_path|_path|_dir|_commit_hash|transformers_version)$")
_SCALARS = (bool, int, str, type(None))


def describe(value: object, depth: int = _MAX_DEPTH) -> Json:
    """A JSON value that is equal for equal values in every process, host and checkout.

    Tensors are described without their values, functions by name and source, objects by class
    and attributes, to a depth of six.
    """
    if isinstance(value, _SCALARS):
        return value if not isinstance(value, enum.Enum) else _named(type(value), value.name)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, complex | bytes | torch.dtype | torch.Size | torch.layout | range | slice):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, enum.Enum):
        return _named(type(value), value.name)
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    return _compound(value, depth)


def describe_tensor(tensor: torch.Tensor) -> dict[str, Json]:
    """Shape, dtype, layout and class of a tensor; neither its device nor its values."""
    return {
        "class": class_name(type(tensor)),
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype),
        "stride": list(tensor.stride()) if tensor.layout is torch.strided else str(tensor.layout),
        "requires_grad": tensor.requires_grad,
    }


def class_name(kind: type) -> str:
    """The qualified name of a class; the script's own module is named as such."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _named(kind: type, name: str) -> str:
    return f"{class_name(kind)}.{name}"


def _compound(value: Any, depth: int) -> Json:
    if isinstance(value, torch.nn.Module):
        return class_name(type(value))
    if depth == 0:
        return class_name(type(value))
    if isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ITEMS]
        return [[describe(key, depth - 1), describe(item, depth - 1)] for key, item in items]
    if isinstance(value, set | frozenset):
        texts: list[Json] = [str(describe(item, depth - 1)) for item in value]
        return sorted(texts, key=str)
    if isinstance(value, list | tuple):
        return [describe(item, depth - 1) for item in value[:_MAX_ITEMS]]
    if isinstance(value, type):
        return class_name(value)
    if callable(value) and hasattr(value, "__qualname__"):
        module = getattr(value, "__module__", None)
        return f"{module}.{value.__qualname__}:{source_digest(value)}"
    return {"class": class_name(type(value)), "fields": dict(attributes(value, depth - 1))}


def attributes(value: object, depth: int = _MAX_DEPTH) -> Iterator[tuple[str, Json]]:
    """The plain attributes of an object, by name, the volatile ones left out."""
    fields = getattr(value, "__dict__", None) or {}
    for name in sorted(name for name in fields if isinstance(name, str)):
        if not _VOLATILE.search(name):
            yield name, describe(fields[name], depth)
