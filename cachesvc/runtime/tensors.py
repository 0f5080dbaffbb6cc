"""What a tensor is, without its values and its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.runtime.code import class_name

_MAX_INNER = 4


def describe_tensor(
    tensor: torch.Tensor,
    describe: Callable[[object], Json] = lambda value: class_name(type(value)),
    *,
    depth: int = _MAX_INNER,
) -> dict[str, Json]:
    """Shape, dtype, layout and class of a tensor; of a wrapper also what lies in it.

    A wrapper is a subclass with `__tensor_flatten__`, such as a quantized weight: its inner
    tensors count, and the context that it gives along, as `describe` says it.
    """
    facts: dict[str, Json] = {
        "class": class_name(type(tensor)),
        "dtype": str(tensor.dtype),
        "requires_grad": tensor.requires_grad,
    }
    with suppress(Exception):  # a lazy parameter and a nested tensor have no shape
        facts["shape"] = list(tensor.shape)
        strided = tensor.layout is torch.strided
        facts["stride"] = list(tensor.stride()) if strided else str(tensor.layout)
    if depth and wrapper_class(tensor) is not None:
        with suppress(Exception):  # the subclass runs code of its own
            facts.update(_inner(tensor, describe, depth - 1))
    return facts


def wrapper_class(tensor: torch.Tensor) -> type | None:
    """The class of a tensor that is made of others; None for a plain one.

    A parameter keeps its data's class, and so does a buffer.
    """
    kind = type(tensor)
    return kind if hasattr(kind, "__tensor_flatten__") else None


def _inner(
    tensor: Any, describe: Callable[[object], Json], depth: int
) -> Iterator[tuple[str, Json]]:
    names, context = tensor.__tensor_flatten__()
    yield (
        "inner",
        {name: describe_tensor(getattr(tensor, name), describe, depth=depth) for name in names},
    )
    yield "context", describe(context)
