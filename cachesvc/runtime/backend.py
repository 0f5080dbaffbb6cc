"""What `torch.compile` was asked to do with a model, read off the compiled object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.runtime.describe import describe

DEFAULT: dict[str, Json] = {"backend": "inductor", "options": [], "dynamic": None}


def original(model: Any) -> Any:
    """The module or function that `torch.compile` was given; `model` itself if none was."""
    inner = getattr(model, "_orig_mod", None)
    if isinstance(inner, torch.nn.Module):
        return inner
    return getattr(model, "_torchdynamo_orig_callable", model)


def is_compiled(model: Any) -> bool:
    """Whether calling the model, or a part of it, goes through `torch.compile`."""
    if isinstance(model, torch.nn.Module):
        return any(_compiled_itself(module) for module in model.modules())
    return _compiled_itself(model)


def _compiled_itself(model: Any) -> bool:
    forward = getattr(model, "forward", None)
    return (
        isinstance(getattr(model, "_orig_mod", None), torch.nn.Module)
        or getattr(model, "_compiled_call_impl", None) is not None
        or hasattr(model, "_torchdynamo_orig_callable")
        or hasattr(forward, "_torchdynamo_orig_callable")
    )


def compile_options(model: Any) -> dict[str, Json]:
    """Backend, options and dynamic setting of the outermost compile of this model.

    A model that is not compiled yet is described as `torch.compile(model)` will make it, so that
    a start before and after that call find the same bundle. Where this torch does not show the
    backend, it counts as the default.
    """
    compiled = getattr(model, "_compiled_call_impl", None) or model
    backend = _backend(compiled)
    if backend is None:
        return DEFAULT
    options = {**getattr(backend, "config", {}), **getattr(backend, "kwargs", {})}
    return {
        "backend": str(getattr(backend, "compiler_name", None) or describe(backend)),
        "options": describe(dict(sorted(options.items()))),
        "dynamic": describe(getattr(backend, "dynamic", None)),
    }


def _backend(compiled: Any) -> Any:
    """The backend callable under Dynamo's wrappers, or None if this torch keeps it elsewhere."""
    callback = getattr(getattr(compiled, "dynamo_ctx", None), "callback", None)
    for candidate in (callback, *_closure(compiled)):
        backend = candidate
        while inner := _unwrapped(backend):
            backend = inner
        if backend is not candidate:
            return backend
    return None


def _unwrapped(callback: Any) -> Any:
    names = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")
    fields = getattr(callback, "__dict__", {})
    return next((fields[name] for name in names if name in fields), None)


def _closure(function: Callable[..., Any]) -> list[Any]:
    cells = getattr(function, "__closure__", None) or ()
    values = []
    for cell in cells:
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a cell that is not filled yet
            continue
    return [value for value in values if not isinstance(value, torch.nn.Module)]
