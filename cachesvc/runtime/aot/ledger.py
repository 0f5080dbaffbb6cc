"""The ledger of guards: what Dynamo has found to be constant, and would check before each call.

A compiled function is kept without these guards. The constants among them (numbers, texts, lengths)
are written down, each with the expression that leads to it from the arguments or from a module, and
looked up again when the function is to be used for the first time.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from cachesvc.core.digest import Json
from cachesvc.runtime.functions import closure

_CONSTANTS = (bool, int, float, str, type(None))
_HELPERS = "___"  # names that only Dynamo's own checks have
_LENGTHS = "SEQUENCE_LENGTH"
_VALUES = frozenset({"EQUALS_MATCH", "CONSTANT_MATCH", "ID_MATCH", "BOOL_MATCH", "NONE_MATCH"})


@dataclass(frozen=True, slots=True)
class Ledger:
    """Expressions, compiled into one that gives a tuple, and what they gave; `aliases` are the
    modules that they name."""

    code: CodeType
    expected: tuple[Any, ...]
    aliases: Mapping[str, str]

    def mentions(self, names: Iterable[str]) -> bool:
        """Whether an expression asks for an attribute, or a part of a place, of such a name."""
        asked = {*self.code.co_names, *(c for c in self.code.co_consts if isinstance(c, str))}
        return not asked.isdisjoint(part for name in names for part in name.split(".")[-1:])

    def first_difference(self, own: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """What is not as it was, for a call of the function `own`; empty if all is.

        An expression that leads nowhere any more counts as a difference.
        """
        try:
            scope = bound(own, args, kwargs)
            values = eval(self.code, {**scope, "G": _Scope(own.__globals__, self.aliases)})  # noqa: S307
        except Exception as error:  # an attribute may raise anything
            return f"{type(error).__name__}: {error}"
        for value, expected in zip(values, self.expected, strict=True):
            if type(value) is not type(expected) or value != expected:
                return f"{value!r} was {expected!r}"[:200]
        return ""


class _Scope:
    """The globals of a function, and modules under the names that Dynamo gives them."""

    def __init__(self, own: Mapping[str, Any], aliases: Mapping[str, str]) -> None:
        self._own = own
        self._aliases = aliases

    def __getitem__(self, name: str) -> Any:
        if name in self._aliases:
            return sys.modules[self._aliases[name]]
        return self._own[name]


def bound(own: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The local variables of a function at the beginning of a call, and what it is closed over."""
    signature = inspect.Signature.from_callable(own, follow_wrapped=False)
    arguments = signature.bind(*args, **kwargs)
    arguments.apply_defaults()
    return {**dict(closure(own)), **arguments.arguments}


def noting(keep: Callable[[Sequence[Any]], Sequence[bool]], found: list[Any]) -> Any:
    """A filter of guards like `keep`, that notes all of them."""

    def noted(entries: Sequence[Any]) -> Sequence[bool]:
        found.extend(entries)
        return keep(entries)

    return noted


def ledger_of(
    entries: Iterable[Any],
    aliases: Mapping[str, str],
    own: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Ledger:
    """The constants among guards, as torch gives them to a filter of guards, for a call of `own`.

    What cannot be looked up from the call again is left out.
    """
    scope = {**bound(own, args, kwargs), "G": _Scope(own.__globals__, aliases)}
    facts: dict[str, Any] = {}
    for entry in entries:
        expression, expected = _fact(entry)
        if expression and _is_usable(expression, aliases) and _gives(expression, scope, expected):
            facts[expression] = expected
    body = ", ".join(facts)
    code = compile(f"({body},)" if facts else "()", "<ledger>", "eval")
    return Ledger(code, tuple(facts.values()), aliases)


def _fact(entry: Any) -> tuple[str, Any]:
    """Expression and value; no expression for a guard that says something else."""
    name, value = str(entry.name), entry.value
    if not entry.has_value or not name or _HELPERS in name:
        return "", None
    if entry.guard_type == _LENGTHS:
        return f"len({name})", len(value)
    if entry.guard_type in _VALUES and type(value) in _CONSTANTS:
        return name, value
    return "", None


def _gives(expression: str, scope: Mapping[str, Any], expected: Any) -> bool:
    try:
        value = eval(expression, dict(scope))  # noqa: S307 - torch has written it
    except Exception:  # an attribute may raise anything
        return False
    return type(value) is type(expected) and bool(value == expected)


def _is_usable(expression: str, aliases: Mapping[str, str]) -> bool:
    """Whether an expression can be looked up in another process: it names arguments, modules that
    are imported there, and functions that do nothing."""
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError:
        return False
    scopes = [
        node.slice
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "G"
    ]
    names = [node.value for node in scopes if isinstance(node, ast.Constant)]
    return all(not str(name).startswith("__") or name in aliases for name in names)


def to_json(ledger: Ledger) -> Json:
    """What is not code in a ledger."""
    return {"expected": list(ledger.expected), "aliases": dict(ledger.aliases)}


def from_json(code: CodeType, value: Any) -> Ledger:
    """The ledger of `to_json`, with its code. Raises KeyError or TypeError for anything else."""
    return Ledger(code, tuple(value["expected"]), dict(value["aliases"]))
