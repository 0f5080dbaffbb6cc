"""What `torch.compile` was asked to do with a model, read off the compiled object."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.runtime.describe import describe
from cachesvc.runtime.functions import closure, own_fields

DEFAULT: dict[str, Json] = {"backend": "inductor", "options": [], "dynamic": None}


def original(model: Any) -> Any:
    """The module or function that `torch.compile` was given; `model` itself if none was."""
    inner = (_field(model, "_modules") or {}).get("_orig_mod")
    if isinstance(inner, torch.nn.Module):
        return inner
    inner = _field(model, "_torchdynamo_orig_callable")
    wrapped = _field(inner, "__wrapped__")
    if isinstance(wrapped, MethodType):  # Dynamo puts a function around a bound method
        return wrapped
    return model if inner is None else inner


def own_forward(module: torch.nn.Module) -> Any:
    """The `forward` put on a module itself; None if it is just that of its class, compiled."""
    forward = original(module.__dict__.get("forward"))
    function = getattr(forward, "__func__", None)
    return None if function is not None and function is type(module).forward else forward


def is_compiled(model: Any) -> bool:
    """Whether calling the model, or a part of it, goes through `torch.compile`."""
    if isinstance(model, torch.nn.Module):
        return any(is_compiled_itself(module) for module in model.modules())
    return is_compiled_itself(model)


def is_compiled_itself(model: Any) -> bool:
    """Whether calling the model goes through `torch.compile`, its parts left aside."""
    return original(model) is not model or _compiled(model) is not model


def is_armed(model: Any) -> bool:
    """Whether a module's call is dispatched to functions compiled ahead of time, or recorded."""
    call = _field(model, "_compiled_call_impl")
    return hasattr(type(call), "replaced") or hasattr(type(_field(model, "forward")), "replaced")


def region_of(model: Any) -> tuple[str, str, dict[str, Any]] | None:
    """Name, structure and options of the kind that a block was compiled with; None for others."""
    call = _call(model)
    found = getattr(getattr(call, "_torchdynamo_orig_callable", call), "region", None)
    return found if isinstance(found, tuple) else None


def _compiled(model: Any) -> Any:
    """What `torch.compile` has put in the place of a model's call; `model` if nothing."""
    call = _call(model)
    if call is not None:
        return call
    forward = getattr(model, "forward", None) if isinstance(model, torch.nn.Module) else None
    return forward if hasattr(forward, "_torchdynamo_orig_callable") else model


def _call(model: Any) -> Any:
    """The compiled call of a module; what a dispatcher of compiled functions has replaced."""
    call = _field(model, "_compiled_call_impl")
    while hasattr(type(call), "replaced"):
        call = call.replaced
    return call


def _field(value: Any, name: str) -> Any:
    """An object's own attribute, or None."""
    return own_fields(value).get(name)


def compile_options(model: Any) -> dict[str, Json]:
    """Backend, options and dynamic setting of the outermost compile of this model.

    A model that is not compiled yet is described as `torch.compile(model)` will make it, so that
    a start before and after that call find the same bundle. Where this torch does not show the
    backend, it counts as the default. `region` names the kind that a block was compiled with.
    """
    region = region_of(model)
    if region is not None:
        return {**_options(model), "region": region[0]}
    return _options(model)


def _options(model: Any) -> dict[str, Json]:
    backend = _backend(_compiled(model))
    if backend is None:
        return DEFAULT
    options = {**getattr(backend, "config", {}), **getattr(backend, "kwargs", {})}
    return {
        "backend": str(getattr(backend, "compiler_name", None) or describe(backend)),
        "options": describe(dict(sorted(options.items()))),
        "dynamic": describe(getattr(backend, "dynamic", None)),
    }


def inductor_options(model: Any) -> dict[str, Any] | None:
    """The options of Inductor that a model was compiled with, modes resolved; none for one that is
    not compiled yet, None for one that another backend compiles."""
    backend = _backend(_compiled(model))
    if backend is None:
        return {}
    if getattr(backend, "compiler_name", None) != DEFAULT["backend"]:
        return None
    return dict(getattr(backend, "config", None) or {})


def compile_function(model: Any) -> Any:
    """What compiles the graphs of this model: one of torch's backends, or a user's function."""
    backend = _backend(_compiled(model))
    return _field(backend, "compiler_fn") or backend


def _backend(compiled: Any) -> Any:
    """The backend callable under Dynamo's wrappers, or None if this torch keeps it elsewhere."""
    callback = getattr(getattr(compiled, "dynamo_ctx", None), "callback", None)
    bound = (value for _, value in closure(compiled) if not isinstance(value, torch.nn.Module))
    for candidate in (callback, *bound):
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
