"""Running a compiled model without its compiler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cachesvc.runtime.aot.pause import paused
from cachesvc.runtime.backend import is_compiled_itself, original, own_forward
from cachesvc.runtime.calls import reaches_compiled


class _Here(threading.local):
    """How many times this thread has entered `eagerly`."""

    depth: int = 0


_here = _Here()


class _StanceHere:
    """A stance of torch's that is force_eager where `eagerly` was entered, else another one."""

    def __init__(self, elsewhere: Any) -> None:
        self.elsewhere = elsewhere

    @property
    def stance(self) -> str:
        return "force_eager" if _here.depth else str(self.elsewhere.stance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.elsewhere, name)


@contextmanager
def eagerly() -> Iterator[None]:
    """Within this context whatever was compiled runs as it was written, in this thread only.

    torch has one stance for all threads; `set_stance` would make those that serve eager too, and
    for ever where two threads set it at once. Where this torch keeps it elsewhere, there is no
    better than that.
    """
    from torch._dynamo import eval_frame

    with paused():
        if not hasattr(eval_frame, "_stance"):
            with torch.compiler.set_stance("force_eager"):
                yield
            return
        _here.depth += 1
        try:
            _look_here(eval_frame)
            yield
        finally:
            _here.depth -= 1


def _look_here(eval_frame: Any) -> None:
    """Has torch look into `_here` from now on, until the program sets a stance."""
    if not isinstance(eval_frame._stance, _StanceHere):
        eval_frame._stance = _StanceHere(eval_frame._stance)


def run_eagerly(model: Any) -> bool:
    """Makes a model run as it was written from now on, in place; whether that could be done.

    A module keeps its parameters, its class and everything else. A function that `torch.compile`
    has returned cannot be changed in place, nor can what calls one.
    """
    if not isinstance(model, torch.nn.Module):
        return not reaches_compiled(model)
    for module in model.modules():
        if is_compiled_itself(module):
            _undo(module)
    return not any(is_compiled_itself(m) or _calls_compiled(m) for m in _inner(model))


def _calls_compiled(module: torch.nn.Module) -> bool:
    """Whether a module, its parts left aside, holds a compiled function or calls one by name."""
    held = any(map(is_compiled_itself, vars(module).values()))
    return held or reaches_compiled(type(module).forward)


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


def is_one_of_several() -> bool:
    """Whether this process computes together with others: a call made once more here alone would
    leave the others waiting."""
    distributed = torch.distributed
    together = distributed.is_available() and distributed.is_initialized()
    return together and distributed.get_world_size() > 1
