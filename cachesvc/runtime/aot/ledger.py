"""The ledger of guards: what Dynamo has found to be constant, and would check before each call.

A compiled function is kept without these guards. What they say of constants (numbers, texts,
lengths, keys), classes and functions is written down, each with the expression that leads to it
from the arguments or from a module, and looked up again when the function is to be used for the
first time.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.call_key import tensor_key, tensors_of
from cachesvc.runtime.aot.call_key import to_json as key_json
from cachesvc.runtime.code import class_name, code_digest, module_name
from cachesvc.runtime.constants import MAX_ITEMS, constant, is_constant
from cachesvc.runtime.functions import closure, home

_CONSTANTS = (bool, int, float, str, type(None))
_SEQUENCES = (list, tuple, torch.Size)
_SETS = (set, frozenset)
_KEYS = (bool, int, str, bytes)
_OF_PROCESS = re.compile(r"__|.*_\d{6,}_c\d+$")
"""Names that Dynamo gives to objects of one process, in the globals of what it traces."""
_HELPERS = "___"  # names that only Dynamo's own checks have
_LENGTHS = "SEQUENCE_LENGTH"
_VALUES = frozenset({"EQUALS_MATCH", "CONSTANT_MATCH", "BOOL_MATCH", "NONE_MATCH"})
_PLACES = frozenset({"ID_MATCH", "CLOSURE_MATCH", "CLASS_MATCH", "BUILTIN_MATCH", "FUNCTION_MATCH"})
_ENVIRON = re.compile(r"(.*?\.environ)\b")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,}")
_LOCAL = re.compile(r"\bL\['(\w+)'\]")  # torch's own form of a local variable
_TENSOR = "TENSOR_MATCH"
_OWN_TENSORS = ("._parameters[", "._buffers[")


class OwnArgument(TccacheError):
    """A call gives a model's own tensor to it."""


class Unwritten(TccacheError):
    """A call depends on a constant that no ledger holds."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Expressions, compiled into one that gives a tuple, and what they gave; `aliases` are the
    modules that they name. Behind the other `expressions` come `tensors`, which lead to tensors
    that are no parameters or buffers: of these the metadata is held."""

    code: CodeType
    expected: tuple[Any, ...]
    aliases: Mapping[str, str]
    expressions: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()

    def mentions(self, names: Iterable[str]) -> bool:
        """Whether an expression asks for an attribute, or a part of a place, of such a name."""
        asked = {*self.code.co_names, *(c for c in self.code.co_consts if isinstance(c, str))}
        return not asked.isdisjoint(part for name in names for part in name.split(".")[-1:])

    def first_difference(self, own: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """What is not as it was, for a call of the function `own`; empty if all is.

        An expression that leads nowhere any more counts as a difference.
        """
        try:
            scope = {**bound(own, args, kwargs), "G": scope_of(own, self.aliases)}
            values = eval(self.code, scope)  # noqa: S307
            for value, expected in zip(values, self.expected, strict=True):
                if not _is_equal(now := told(value), expected):
                    return f"{now!r} was {expected!r}"[:200]
        except Exception as error:  # an attribute may raise anything
            return f"{type(error).__name__}: {error}"
        return ""


def scope_of(own: Any, aliases: Mapping[str, str]) -> _Scope:
    """What `G` stands for in an expression about a call of the function `own`."""
    return _Scope(own.__globals__, aliases)


def told(value: Any) -> Json:
    """A value as a ledger holds it: a function or a class by its place, a tensor by its metadata.
    Raises TypeError for what it does not hold."""
    kind = type(value)
    if kind in _CONSTANTS:
        return value  # type: ignore[no-any-return]
    if kind in _SEQUENCES and len(value) <= MAX_ITEMS:
        items = [told(item) for item in value]
        return items if kind is list else {kind.__name__: items}
    if kind in _SETS and len(value) <= MAX_ITEMS:
        return {kind.__name__: [*sorted(repr(told(item)) for item in value)]}
    if kind is slice:
        return {"slice": [told(item) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, torch.Tensor):
        return [class_name(kind), key_json(tensor_key(value))]
    return _named(value)


def _named(value: Any) -> Json:
    """A value by a text that begins with its kind."""
    if type(value) is bytes:
        return f"bytes {value.hex()}"
    if isinstance(value, type):
        return f"class {class_name(value)}"
    if type(value) is FunctionType:
        return f"function {module_name(home(value))}.{value.__code__.co_name}"
    if type(value) is BuiltinFunctionType:
        return f"built-in {value.__name__}"
    if type(value) is CodeType:
        return f"code {code_digest(value)}"
    if isinstance(value, torch.device):
        return f"device {value}"
    if is_constant(value):
        return constant(value)
    raise TypeError(f"a ledger holds no {class_name(type(value))}")


def _is_equal(now: Json, before: Json) -> bool:
    """By their texts: no truth is a number here, zero is not minus zero, and NaN is itself."""
    return repr(now) == repr(before)


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
    entries: Sequence[Any],
    aliases: Mapping[str, str],
    own: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    traced: Iterable[CodeType] = (),
) -> Ledger:
    """The constants among guards, as torch gives them to a filter of guards, for a call of `own`,
    in which Dynamo went through the code in `traced`.

    What cannot be looked up from the call again is left out. Raises OwnArgument, and Unwritten for
    a value that would have to be compared and cannot be told, or a tensor that is not found again.
    """
    _check_arguments(args, kwargs)
    scope = {**bound(own, args, kwargs), "G": scope_of(own, aliases)}
    facts: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    for entry in entries:
        facts |= {
            expression: expected
            for expression, expected in _facts(entry)
            if _is_usable(expression, aliases) and _gives(expression, scope, expected)
        }
        if _is_tensor(entry) and _is_usable(str(entry.name), aliases):
            tensors[str(entry.name)] = _written(str(entry.name), entry.value)
    if lost := [text for text, value in tensors.items() if not _gives(text, scope, value)]:
        raise Unwritten(f"the tensor {lost[0]} cannot be looked up again")
    facts |= {e: v for e, v in _environment(entries, traced) if _gives(e, scope, v)}
    body = ", ".join((*facts, *tensors))
    code = compile(f"({body},)" if body else "()", "<ledger>", "eval")
    expected = (*facts.values(), *tensors.values())
    return Ledger(code, expected, aliases, tuple(facts), tuple(tensors))


def _check_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A tensor of the model that is also an argument is one input of the graph: which of the two a
    later call means could not be told."""
    model = args[0] if args else None
    if isinstance(model, torch.nn.Module):
        own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
        if any(id(tensor) in own for tensor in tensors_of(args[1:], kwargs)):
            raise OwnArgument("an argument is a parameter or a buffer of the model")


def _is_tensor(entry: Any) -> bool:
    """Whether a guard is about a tensor that lies elsewhere than most do."""
    name = str(entry.name)
    return entry.guard_type == _TENSOR and not any(own in name for own in _OWN_TENSORS)


def _facts(entry: Any) -> Iterator[tuple[str, Any]]:
    """Expressions and values; none for a guard that says something else."""
    name, value, kind = str(entry.name), entry.value, entry.guard_type
    if not entry.has_value or not name or _HELPERS in name:
        return
    yield from _membership(entry, name, value)
    if kind == _LENGTHS:
        yield f"len({name})", len(value)
    elif kind in _VALUES or (kind in _PLACES and _has_place(value)):
        yield name, _written(name, value)
    elif kind == "DICT_KEYS_MATCH" and not name.endswith(".modules"):
        yield f"list({name})", _written(name, list(value))
    elif isinstance(value, torch.Tensor) and (other := _other_source(entry)):
        yield f"{name} is {other}", True
    if not isinstance(value, torch.nn.Module | torch.Tensor) and kind in ("TYPE_MATCH", _LENGTHS):
        yield f"type({name})", told(type(value))


def _has_place(value: Any) -> bool:
    """Whether another process can find the same one, where a guard asks for just this object."""
    kinds = (FunctionType, BuiltinFunctionType, CodeType, type, torch.device)
    return isinstance(value, kinds) or is_constant(value)


def _written(name: str, value: Any) -> Json:
    try:
        return told(value)
    except (TypeError, ValueError) as error:
        raise Unwritten(f"{name} was taken for constant: {error}") from error


def _membership(entry: Any, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object has, or a container holds; the modules that are imported differ by process."""
    asked = _asked(entry)
    if "attr" in asked and entry.guard_type == "HASATTR" and not isinstance(value, torch.nn.Module):
        yield f"hasattr({name}, {asked['attr']!r})", hasattr(value, asked["attr"])
    if type(asked.get("key")) in _KEYS and not name.endswith(".modules"):
        yield f"{asked['key']!r} in {name}", asked["key"] in value


def _asked(entry: Any) -> Mapping[str, Any]:
    """What a guard asks besides; empty where this torch keeps it elsewhere."""
    made = getattr(getattr(entry, "orig_guard", None), "create_fn", None)
    found: Mapping[str, Any] = getattr(made, "keywords", None) or {}
    return found


def _environment(entries: Sequence[Any], traced: Iterable[CodeType]) -> Iterator[tuple[str, Any]]:
    """The variables of the environment that code may have read, if any has: torch makes no guard
    for one that is not there."""
    found = (_ENVIRON.match(str(entry.name)) for entry in entries)
    places = {match[1] for match in found if match}
    codes = list(traced)
    environment: Any = os.environ
    names = {name for code in codes for name in _texts(code) if _VARIABLE.fullmatch(name)}
    for place, name in itertools.product(sorted(places), sorted(names)):
        key = environment.encodekey(name)
        value = environment._data.get(key)
        yield f"{place}._data.get({key!r})", told(value)


def _texts(code: CodeType) -> Iterator[str]:
    for item in code.co_consts:
        if isinstance(item, str):
            yield item
        elif isinstance(item, CodeType):
            yield from _texts(item)


def _other_source(entry: Any) -> str:
    """Where the same object was found again."""
    source = _asked(entry).get("source_b")
    name = getattr(source, "name", "")
    return _LOCAL.sub(r"\1", str(name() if callable(name) else name))


def _gives(expression: str, scope: Mapping[str, Any], expected: Any) -> bool:
    try:
        value = told(eval(expression, dict(scope)))  # noqa: S307 - torch has written it
    except Exception:  # an attribute may raise anything
        return False
    return _is_equal(value, expected)


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
    return all(name in aliases or not _OF_PROCESS.match(str(name)) for name in names)


def to_json(ledger: Ledger) -> Json:
    """What is not code in a ledger."""
    return {
        "expected": list(ledger.expected),
        "aliases": dict(ledger.aliases),
        "expressions": list(ledger.expressions),
        "tensors": list(ledger.tensors),
    }


def from_json(code: CodeType, value: Any) -> Ledger:
    """The ledger of `to_json`, with its code. Raises KeyError or TypeError for anything else."""
    return Ledger(
        code,
        tuple(value["expected"]),
        dict(value["aliases"]),
        tuple(value["expressions"]),
        tuple(value["tensors"]),
    )
