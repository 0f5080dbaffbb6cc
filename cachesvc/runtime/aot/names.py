"""What the names in captured code stand for, told so that another process finds the same."""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from collections.abc import Iterator, Mapping
from dis import get_instructions
from types import CodeType
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot import stand_ins

_BUILTINS = "__builtins_dict__"
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME")
GLOBAL = "global"
"""The recipe of a name that is looked up in the function's own module, at each call."""


class Unresolved(TccacheError):
    """Captured code names something that another process could not find."""


def recipes(
    code: CodeType, scope: Mapping[str, Any], own: Mapping[str, Any], graph: str
) -> dict[str, list[str]]:
    """How to find each global that captured code names: `scope` is what it ran with, `own` the
    globals of the function that was captured, `graph` the name of the compiled graph.

    Raises Unresolved for a value that no name leads to, and for code that writes globals: they are
    those of a module, and the code runs beside it.
    """
    if written := [i.argval for i in _instructions(code) if i.opname in _WRITES]:
        raise Unresolved(f"the captured code writes the global {written[0]}")
    attributes = _attributes(code)
    found = {}
    for name in _globals(code):
        if name != graph:
            value = scope[name] if name in scope else getattr(builtins, name, None)
            found[name] = _recipe(name, value, own, attributes.get(name, set()))
    return found


def resolved(found: Mapping[str, list[str]], own: Mapping[str, Any]) -> dict[str, Any]:
    """The values that recipes lead to; `own` are the globals of the function that is replaced.

    Raises KeyError, AttributeError or ImportError where something is not there any more.
    """
    return {name: _value(recipe, own) for name, recipe in found.items()}


def _value(recipe: list[str], own: Mapping[str, Any]) -> Any:
    kind, *rest = recipe
    if kind == "stand-ins":
        return stand_ins.stand_in(rest[0])
    if kind == GLOBAL:
        return own[rest[0]]
    if kind == "builtins":
        return vars(builtins)
    if kind == "builtin":
        return getattr(builtins, rest[0])
    value: Any = importlib.import_module(rest[0])
    for part in rest[1].split(".") if len(rest) > 1 else ():
        value = getattr(value, part)
    return value


def _recipe(name: str, value: Any, own: Mapping[str, Any], attributes: set[str]) -> list[str]:
    if name in own and own[name] is value and not name.startswith("__"):
        return [GLOBAL, name]
    if isinstance(value, types.ModuleType):
        if stand_ins.knows(value.__name__, attributes):
            return ["stand-ins", value.__name__]
        return ["module", value.__name__]
    if name.startswith(_BUILTINS):
        return ["builtins"]
    if value is not None and getattr(builtins, name, None) is value:
        return ["builtin", name]
    place = [str(getattr(value, "__module__", "")), str(getattr(value, "__qualname__", ""))]
    if _leads_to(place, value):
        return ["name", *place]
    raise Unresolved(f"the captured code names {name}, a {type(value).__qualname__}")


def _leads_to(place: list[str], value: Any) -> bool:
    found: Any = sys.modules.get(place[0])
    for part in place[1].split("."):
        found = getattr(found, part, None)
    return found is value and value is not None


def _globals(code: CodeType) -> list[str]:
    loads = (i for i in _instructions(code) if i.opname in _LOADS)
    return list(dict.fromkeys(str(i.argval) for i in loads))


def _attributes(code: CodeType) -> dict[str, set[str]]:
    """The attributes that are asked of each global; an unknown use counts as one without a name."""
    found: dict[str, set[str]] = {}
    name: str | None = None
    for instruction in _instructions(code):
        if name is not None:
            asks = instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
            found.setdefault(name, set()).add(str(instruction.argval) if asks else "")
        name = str(instruction.argval) if instruction.opname in _LOADS else None
    return found


def _instructions(code: CodeType) -> Iterator[Any]:
    yield from get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
