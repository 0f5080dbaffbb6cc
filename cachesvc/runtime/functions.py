"""Functions under what holds them: decorators, methods, properties, compiled wrappers."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

# Code that the environment fingerprint stands for, by the versions of torch and Python.
_STOPS = (sys.stdlib_module_names - {"test", "__main__"}) | frozenset(
    {"torch", "torchgen", "functorch", "builtins", "numpy", "triton"}
)
# Code that fetches files and never runs in a graph; it has an id of its own in every process.
_FETCHES = frozenset({"transformers.utils.hub"})
_MADE_BY_PYTHON = 1 << 9
_NOWHERE = "exec"  # code that was run in a dictionary without a name
_MAX_LAYERS = 32
_NEVER = frozenset({str, int, float, bool, tuple, dict, list, set, type, type(None), bytes})
_WRAPPED = ("_torchdynamo_orig_callable", "__wrapped__")
_HOLDERS = (functools.cached_property, functools.partial, functools.partialmethod)
_OPERATOR = ("_init_fn", "_abstract_fn", "_setup_context_fn", "_backward_fn")
_CACHED = type(functools.lru_cache(int))


def is_foreign(module: object) -> bool:
    """Whether a module of this name is torch's, Python's or another that is not followed."""
    if not isinstance(module, str):
        return False
    return module.partition(".")[0] in _STOPS or module in _FETCHES


def is_foreign_class(kind: type) -> bool:
    """The same of a class; one that `exec` has made may claim to be a built-in one."""
    if kind.__module__ == "builtins":
        return not kind.__flags__ & _MADE_BY_PYTHON
    return is_foreign(kind.__module__)


def home(function: types.FunctionType) -> str:
    """The module whose globals a function reads; a decorator may have copied another's name."""
    name = function.__globals__.get("__name__")
    return name if isinstance(name, str) else _NOWHERE


def layers(value: object) -> tuple[types.FunctionType, ...]:
    """The Python functions that run when a value is called or, in a class, taken: outermost first.

    Decorators come with what they wrap, methods, properties and caches stand for their functions,
    and what `torch.compile` or Triton made stands for what it was given.
    """
    if type(value) in _NEVER:
        return ()
    if type(value) is types.FunctionType and not value.__dict__:
        return (value,)
    found: dict[int, types.FunctionType] = {}
    seen: set[int] = set()
    waiting = [value]
    while waiting and len(seen) < _MAX_LAYERS:
        item = waiting.pop(0)
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        inner = list(_inner(item))
        if type(item) is types.FunctionType and not _is_compiled(item):
            found[id(item)] = item
        waiting += inner
    return tuple(found.values())


def _is_compiled(function: types.FunctionType) -> bool:
    return _WRAPPED[0] in function.__dict__


def _inner(value: Any) -> Iterator[object]:
    kind = type(value)
    if issubclass(kind, (types.MethodType, staticmethod, classmethod)):
        yield value.__func__
    elif issubclass(kind, property):
        yield from (value.fget, value.fset, value.fdel)
    elif issubclass(kind, _HOLDERS):
        yield value.func
    elif kind is _CACHED:
        yield value.__wrapped__
    elif kind.__module__.startswith("triton."):
        yield own_fields(value).get("fn")
    elif kind.__module__ == "torch._library.custom_ops":
        fields = own_fields(value)
        yield from (fields.get(name) for name in _OPERATOR)
    elif not issubclass(kind, type):
        fields = own_fields(value)
        yield from (fields[name] for name in _WRAPPED if name in fields)


def is_followed(value: object) -> bool:
    """Whether a value runs Python code that is not torch's or Python's own."""
    return any(not is_foreign(home(layer)) for layer in layers(value))


def own_fields(value: object) -> dict[str, Any]:
    """An object's own dictionary; none of its code runs, as a `__getattr__` would."""
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def closure(function: Any) -> Iterator[tuple[str, Any]]:
    """The values that a function has from where it was defined, by name."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        with suppress(ValueError):  # a cell that is not filled yet
            yield name, cell.cell_contents


def defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The values that the arguments of a function have where they are not given, by name."""
    values = function.__defaults__ or ()
    count = function.__code__.co_argcount
    yield from zip(function.__code__.co_varnames[count - len(values) : count], values, strict=False)
    yield from (function.__kwdefaults__ or {}).items()


def is_found_by_name(value: Any) -> bool:
    """Whether a function is what its module has under its name.

    Others (made in a function, typed in, replaced) can share a name, so the name is not enough.
    """
    if type(value) not in (types.FunctionType, _CACHED):
        return False
    module = sys.modules.get(str(getattr(value, "__module__", "")))
    holder: Any = module
    for name in value.__qualname__.split("."):
        fields = own_fields(holder) if holder is module else vars(holder)
        holder = fields.get(name) if module is not None else None
        if holder is value:
            return True
        if holder is not None and not isinstance(holder, type):
            return value in layers(holder)
        if holder is None:
            return False
    return False
