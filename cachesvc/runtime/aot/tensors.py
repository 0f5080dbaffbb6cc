"""The metadata of a model's tensors, asked before every call; their values may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cachesvc.runtime.aot.call_key import tensor_key


class TensorSeal:
    """Some tensors as they were: class, dtype, shape, strides, device, gradients.

    torch's own check of many tensors is used, which Dynamo's guards once were made of; where this
    torch has none, or does not take these, each is described anew.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        distinct = {id(tensor): tensor for tensor in tensors}
        self._tensors = tuple(distinct.values())
        self.ids = frozenset(distinct)
        self._guards = _guards(self._tensors)
        if self._guards is None:
            self._keys = [(type(tensor), tensor_key(tensor)) for tensor in self._tensors]

    def are_same(self) -> bool:
        """Whether the metadata of all is what it was."""
        if not self._tensors:
            return True
        if self._guards is not None:
            return bool(self._guards.check(*self._tensors))
        now = [(type(tensor), tensor_key(tensor)) for tensor in self._tensors]
        return now == self._keys


def _guards(tensors: Sequence[torch.Tensor]) -> torch._C._dynamo.guards.TensorGuards | None:
    """torch's check of these tensors, or None."""
    made = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if not tensors or not hasattr(made, "TensorGuards"):
        return None
    sizes: Any = [list(tensor.shape) for tensor in tensors]
    strides: Any = [list(tensor.stride()) for tensor in tensors]
    try:
        guards = torch._C._dynamo.guards.TensorGuards(
            *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
        )
        return guards if guards.check(*tensors) else None
    except (TypeError, RuntimeError, ValueError):
        return None
