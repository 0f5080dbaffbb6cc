"""What a name in code stands for."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

from cachesvc.runtime.code import module_name
from cachesvc.runtime.functions import home, is_followed, is_foreign
from cachesvc.runtime.operators import defined

# What a module says about itself; a library's version is none of its code.
_MODULE_FACTS = frozenset(
    {"__name__", "__file__", "__doc__", "__spec__", "__package__", "__version__"}
)


def resolve(function: types.FunctionType, chain: tuple[str, ...]) -> tuple[str, Any] | None:
    """Name and value of the global that code means: of `pkg.sub.f` the `f` in pkg.sub.

    None for a built-in, for what torch or Python itself has there, and for what nobody has yet.
    """
    scope, where = function.__globals__, module_name(home(function))
    name, *rest = chain
    if name in _MODULE_FACTS or name not in scope:
        return None
    value = scope[name]
    while issubclass(type(value), types.ModuleType) and rest:
        if value is torch and rest[0] == "ops":
            return _operator(rest[1:])
        scope, where = vars(value), module_name(value.__name__)
        name = rest.pop(0)
        if type(value) is not types.ModuleType or name not in scope:
            return None  # a lazy module has a name only once somebody has asked for it
        value = scope[name]
        if is_foreign(where) and not is_followed(value):
            return None
    return f"{where}.{name}", value


def steps(
    function: types.FunctionType, chain: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], str]]:
    """The dictionaries, each with a name, in which `resolve` looks: also those without it yet."""
    scope: dict[str, Any] = function.__globals__
    for name in chain:
        yield scope, name
        value = scope.get(name)
        if value is torch or type(value) is not types.ModuleType:
            return
        scope = vars(value)


def _operator(names: list[str]) -> tuple[str, Any] | None:
    """A custom operator that Python defines, by the names after `torch.ops`."""
    known = defined()
    name = "::".join(names[:2])
    return (name, known[name]) if name in known else None
