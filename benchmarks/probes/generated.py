"""Probes that are made from a model: each plain attribute, constant, class and function of it."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from benchmarks.probes.trial import Probe, Side

_MOST = 24  # functions of one module
_OWN = frozenset({"training", "call_super_init", "dump_patches"})
_TORCH = {
    "torch.nn.functional": (
        *("gelu", "relu", "silu", "scaled_dot_product_attention", "layer_norm", "linear"),
        *("softmax", "embedding", "dropout", "conv2d", "batch_norm", "adaptive_avg_pool2d"),
        "multi_head_attention_forward",
    ),
    "torch": (
        *("matmul", "softmax", "rsqrt", "bmm", "tanh", "relu", "where", "arange", "cat"),
        *("sigmoid", "layer_norm", "outer", "full", "topk", "pow", "square"),
    ),
    "torch.Tensor": (
        *("__add__", "__mul__", "matmul", "pow", "mean", "float", "view", "transpose"),
        *("masked_fill", "clamp", "mul", "softmax"),
    ),
}


def generated(model: nn.Module) -> Iterator[Probe]:
    """All probes for this model."""
    kinds = {type(module): module for module in reversed(list(model.modules()))}
    for kind, module in kinds.items():
        yield from _attributes(kind, module)
        if kind is not type(model):
            yield from _class_probes(kind)
    if config := getattr(model, "config", None):
        yield from _config(config)
    names = {kind.__module__ for kind in kinds if not kind.__module__.startswith("torch.")}
    for name in sorted(names):
        yield from _globals(name)
    yield from _of_torch()


def _changed(value: Any) -> Any:
    """Another value of the same kind; None where there is none to be thought of."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.5 + 0.25
    if isinstance(value, str):
        return {"sdpa": "eager", "gelu": "relu", "silu": "gelu"}.get(value, value + "x")
    return None


def _attributes(kind: type, module: nn.Module) -> Iterator[Probe]:
    for name, value in module.__dict__.items():
        changed = _changed(value)
        if name.startswith("_") or name in _OWN or changed is None:
            continue
        yield Probe(f"attribute {kind.__name__}.{name}", _set_attribute(kind, name, changed))


def _set_attribute(kind: type, name: str, value: Any) -> Callable[[Side], None]:
    def change(side: Side) -> None:
        found = next(m for m in side.model.modules() if type(m) is kind)
        setattr(found, name, value)

    return change


def _config(config: Any) -> Iterator[Probe]:
    for name, value in vars(config).items():
        changed = _changed(value)
        if changed is not None:
            yield Probe(f"config {name}", _set_config(name, changed))


def _set_config(name: str, value: Any) -> Callable[[Side], None]:
    def change(side: Side) -> None:
        side.model.config.__dict__[name] = value

    return change


def _doubling(called: Any) -> Any:
    def doubled(*args: Any, **kwargs: Any) -> Any:
        return twice(called(*args, **kwargs))

    return doubled


def twice(output: Any) -> Any:
    """The same with its tensors of floats doubled."""
    if isinstance(output, torch.Tensor):
        return output + output if output.is_floating_point() else output
    if type(output) in (tuple, list):
        return type(output)(map(twice, output))
    return output


def _class_probes(kind: type[nn.Module]) -> Iterator[Probe]:
    name = kind.__name__
    forward = vars(kind).get("forward")
    if not isinstance(forward, types.FunctionType):
        return
    yield Probe(f"{name}.forward replaced", None, _patching(kind, "forward", _doubling(forward)))
    yield Probe(f"{name}.forward with other code", None, _other_code(forward))
    if not kind.__module__.startswith("torch."):
        yield Probe(f"bases of {name}", None, _other_bases(kind))


def _patching(holder: Any, name: str, value: Any) -> Callable[[ExitStack, Side], None]:
    def change(stack: ExitStack, side: Side) -> None:
        stack.enter_context(patch.object(holder, name, value))

    return change


def _other_code(function: types.FunctionType) -> Callable[[ExitStack, Side], None]:
    """As an editor's reload does it: the function stays, its code is another."""

    def change(stack: ExitStack, side: Side) -> None:
        before = function.__code__
        if before.co_freevars:
            return
        copy = types.FunctionType(before, function.__globals__, "copy", function.__defaults__)
        copy.__kwdefaults__ = function.__kwdefaults__
        function.__globals__["_copied_for_probe"] = copy
        function.__globals__["_twice_for_probe"] = twice

        def run(*args: Any, **kwargs: Any) -> Any:
            return _twice_for_probe(_copied_for_probe(*args, **kwargs))  # type: ignore[name-defined] # noqa: F821

        function.__code__ = run.__code__

        def back() -> None:
            function.__code__ = before
            del function.__globals__["_copied_for_probe"]
            del function.__globals__["_twice_for_probe"]

        stack.callback(back)

    return change


def _other_bases(kind: type) -> Callable[[ExitStack, Side], None]:
    class Between(nn.Module):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return twice(super().__call__(*args, **kwargs))

    def change(stack: ExitStack, side: Side) -> None:
        before = kind.__bases__
        kind.__bases__ = (Between, *before) if before != (nn.Module,) else (Between,)
        stack.callback(setattr, kind, "__bases__", before)

    return change


def _globals(name: str) -> Iterator[Probe]:
    module = sys.modules[name]
    functions = 0
    for key, value in list(vars(module).items()):
        if key.startswith("__"):
            continue
        if isinstance(value, types.FunctionType):
            functions += 1
            if functions <= _MOST:
                doubled = _patching(module, key, _doubling(value))
                yield Probe(f"function {name}.{key}", None, doubled)
        elif type(value) in (bool, int, float) and (changed := _changed(value)) is not None:
            yield Probe(f"global {name}.{key}", None, _patching(module, key, changed))


def _of_torch() -> Iterator[Probe]:
    for place, names in _TORCH.items():
        holder = torch.Tensor if place == "torch.Tensor" else sys.modules[place]
        for name in names:
            value = getattr(holder, name)
            doubled = _doubling(value)
            yield Probe(f"{place}.{name} wrapped", None, _patching(holder, name, doubled))
    functional = torch.nn.functional
    for name, other in (("gelu", torch.tanh), ("silu", torch.sigmoid), ("relu", torch.sigmoid)):
        yield Probe(
            f"F.{name} is torch's {other.__name__}", None, _patching(functional, name, other)
        )
    yield Probe("torch.relu is torch.tanh", None, _patching(torch, "relu", torch.tanh))
    yield Probe("nn.Module.__call__ replaced", None, _module_call)
    yield Probe("a global hook", None, _global_hook)
    yield Probe("a global hook before", None, _global_pre_hook)


def _module_call(stack: ExitStack, side: Side) -> None:
    call = nn.Module.__call__

    def doubled(self: Any, *args: Any, **kwargs: Any) -> Any:
        return twice(call(self, *args, **kwargs))

    stack.enter_context(patch.object(nn.Module, "__call__", doubled))


def _global_hook(stack: ExitStack, side: Side) -> None:
    def hook(module: Any, args: Any, output: Any) -> Any:
        return twice(output)

    stack.callback(nn.modules.module.register_module_forward_hook(hook).remove)


def _global_pre_hook(stack: ExitStack, side: Side) -> None:
    def hook(module: Any, args: Any) -> Any:
        return twice(tuple(args))

    stack.callback(nn.modules.module.register_module_forward_pre_hook(hook).remove)
