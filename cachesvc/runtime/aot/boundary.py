"""Where a model is compiled: the places at which a call can take another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from cachesvc.runtime.backend import is_compiled_itself, original, region_of

_CALL = "_compiled_call_impl"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class Boundary:
    """One module whose calls are compiled, or would be.

    `holder` has the callable that is replaced as its `attribute`; `replaced` is what it is now,
    None where nothing is compiled yet. `kinds` are the names under which functions for this module
    are kept, the most general one first: a region's, and the module's own place. `differ` are the
    attributes in which the blocks of its region differ.
    """

    path: str
    kinds: tuple[str, ...]
    module: torch.nn.Module
    holder: torch.nn.Module
    attribute: str
    replaced: Callable[..., Any] | None
    differ: tuple[str, ...] = ()

    @property
    def plain_call(self) -> Callable[..., Any]:
        """The module's call as it was written, with its hooks."""
        call: Callable[..., Any] = self.module._call_impl
        return call

    def put(self, call: Any) -> None:
        """Puts a callable in the place of the compiled one; None takes it away."""
        if call is None:
            self.holder.__dict__.pop(self.attribute, None)
        else:
            # Past `__setattr__`: a compiled model passes attributes on to the one inside.
            self.holder.__dict__[self.attribute] = call


def boundaries(model: Any) -> list[Boundary]:
    """The outermost places of a model; none of a function, which nobody can replace in place."""
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return []
    found = list(_compiled_parts(model, ""))
    return found or [_of_call(model, "")]


def _compiled_parts(module: torch.nn.Module, path: str) -> Iterator[Boundary]:
    if is_compiled_itself(module):
        boundary = _boundary(module, path)
        if boundary is not None:
            yield boundary
        return
    for name, child in module._modules.items():
        if child is not None:
            yield from _compiled_parts(child, f"{path}.{name}" if path else name)


def _boundary(module: torch.nn.Module, path: str) -> Boundary | None:
    """Where one compiled module can be replaced; None where only its `forward` was compiled."""
    inner = original(module)
    if inner is not module:
        forward = module.__dict__.get("forward")
        if not callable(forward) or not isinstance(inner, torch.nn.Module):
            return None
        return Boundary(path, (path,), inner, module, "forward", forward)
    return _of_call(module, path) if module.__dict__.get(_CALL) is not None else None


def _of_call(module: torch.nn.Module, path: str) -> Boundary:
    region = region_of(module)
    kinds = (path,) if region is None else (f"region {region[0]} {region[1]}", path)
    call = module.__dict__.get(_CALL)
    differ = getattr(getattr(call, "_torchdynamo_orig_callable", call), "differ", ())
    return Boundary(path, kinds, module, module, _CALL, call, tuple(differ))


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether a call of the module runs hooks around its forward, its own or those of all."""
    own = any(module.__dict__.get(name) for name in _HOOKS)
    every = vars(torch.nn.modules.module)
    return own or any(
        hooks
        for name, hooks in every.items()
        if name.startswith("_global_") and name.endswith("_hooks") and "registration" not in name
    )
