"""Running a compiled model without its compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cachesvc.runtime.backend import is_compiled_itself, original, own_forward


@contextmanager
def eagerly() -> Iterator[None]:
    """Within this context whatever was compiled runs as it was written, in this thread."""
    with torch.compiler.set_stance("force_eager"):
        yield


def run_eagerly(model: Any) -> bool:
    """Makes a model run as it was written from now on, in place; whether that could be done.

    A module keeps its parameters, its class and everything else. A function that `torch.compile`
    has returned cannot be changed in place.
    """
    if not isinstance(model, torch.nn.Module):
        return not is_compiled_itself(model)
    for module in model.modules():
        if is_compiled_itself(module):
            _undo(module)
    return not any(map(is_compiled_itself, _inner(model)))


def _inner(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules, each wrapper of `torch.compile` left aside: it only calls what it wraps now."""
    return (module for module in model.modules() if original(module) is module)


def _undo(module: torch.nn.Module) -> None:
    inner = original(module)
    if inner is not module:
        module.forward = inner.__call__
    elif getattr(module, "_compiled_call_impl", None) is not None:
        module._compiled_call_impl = None
    else:
        module.forward = original(own_forward(module) or module.forward)


def run_all_eagerly() -> None:
    """Makes everything in this process run as it was written, until the stance is set again."""
    torch.compiler.set_stance("force_eager")


def is_training(model: Any) -> bool:
    """Whether any part of a model is in training mode."""
    return isinstance(model, torch.nn.Module) and any(m.training for m in model.modules())
