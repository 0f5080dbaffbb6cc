"""The ways on which a ledger finds its constants, watched: it is asked again once one has moved.

The seal of a model holds what its digest has read. A ledger leads further: into objects that the
digest leaves closed, to attributes of functions, to what the model's own code writes.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import BuiltinMethodType, CellType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import torch

from cachesvc.runtime.aot.ledger import Ledger, bound, scope_of
from cachesvc.runtime.aot.tensors import TensorSeal
from cachesvc.runtime.aot.watch import ABSENT, Watch, held
from cachesvc.runtime.aot.words import cell_words, class_words, function_words
from cachesvc.runtime.constants import has_volatile_name
from cachesvc.runtime.functions import is_foreign_class, own_fields
from cachesvc.runtime.model import no_collection

_PLAIN = (bool, int, float, str, bytes, type(None))
_OF_CODE = frozenset({"__code__", "__defaults__", "__kwdefaults__"})
_ATTRIBUTE = r"(?:\._(?:parameters|buffers)\['[^']*'\]|\.(?P<name>\w+))"
_OF_WHOLES = (len, type, list, dict, tuple)
_SEALED = frozenset({"_parameters", "_buffers", "_modules", "__class__", "__dict__"})


class Paths:
    """All that the expressions of one ledger go through, for a call of the function `own`, whose
    model is `model`.

    What lies in the arguments of the call is left to its key, and attributes of the model's modules
    to the model's seal: but for those named in `loose`, which the model's own code writes.
    """

    def __init__(
        self,
        ledger: Ledger,
        model: Any,
        own: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        loose: Collection[str],
    ) -> None:
        self._watch = Watch()
        self._model = model
        given = bound(own, args, kwargs)
        sealed = _sealed(given, model, loose)
        self._scope = {**given, "G": scope_of(own, ledger.aliases)}
        self._own = own
        self._aliases = ledger.aliases
        self._found: dict[str, tuple[Any, bool]] = {}
        with no_collection():
            for expression in _parsed([text for text in ledger.expressions if not sealed(text)]):
                self._follow(expression)
            tensors = [self._follow(expression) for expression in _parsed(ledger.tensors)]
            self._tensors = TensorSeal([t for t in tensors if isinstance(t, torch.Tensor)])
            self._watch.close()
        self._scope.clear()
        self._found.clear()

    def are_whole(self) -> bool:
        """Whether every expression must still give what it gave; not, where one raises."""
        try:
            return self._watch.is_whole() and self._tensors.are_same()
        except Exception:  # an attribute may raise anything
            return False

    def _follow(self, expression: ast.expr) -> Any:
        """What an expression leads to; None if it lies in an argument, which ends with the call."""
        try:
            _, value, is_given = self._value(expression)
        except Exception:  # the ledger itself will say so
            self._watch.add_loose(lambda: False)
            return None
        return None if is_given else value

    def _value(self, node: ast.expr) -> tuple[str, Any, bool]:
        """The text of an expression, its value, and whether that lies in an argument."""
        match node:
            case ast.Constant(value=value):
                return repr(value), value, False
            case ast.Name(id=name):
                value = self._scope.get(name, getattr(builtins, name, ABSENT))
                return name, value, self._is_argument(name, value)
            case ast.Attribute(value=inner, attr=name):
                text, holder, given = self._value(inner)
                return self._known(f"{text}.{name}", holder, name, given)
            case ast.Subscript(value=inner, slice=part):
                text, holder, given = self._value(inner)
                key_text, key, _ = self._value(part)
                return self._known(f"{text}[{key_text}]", holder, key, given, is_item=True)
            case ast.Call(func=inner, args=arguments):
                return self._called(inner, arguments)
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[right]):
                one, other = self._value(left), self._value(right)
                return f"{one[0]} is {other[0]}", one[1] is other[1], False
            case ast.Compare(left=ast.Constant(value=key), comparators=[right]):
                text, holder, given = self._value(right)
                if not given:
                    self._watch_whole(holder)
                return f"{key!r} in {text}", key in holder, given
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                return f"-{value}", -value, False
        raise TypeError(ast.dump(node))

    def _is_argument(self, name: str, value: Any) -> bool:
        is_own = name in self._own.__code__.co_freevars
        return name in self._scope and name != "G" and not is_own and value is not self._model

    def _known(
        self, text: str, holder: Any, name: Any, given: bool, *, is_item: bool = False
    ) -> tuple[str, Any, bool]:
        if text not in self._found:
            value = holder[name] if is_item else getattr(holder, name)
            if is_item:
                self._watch_item(holder, name, value, given)
            else:
                self._watch_attribute(holder, name, value, given)
            self._found[text] = value, given and value is not self._model
        return text, *self._found[text]

    def _called(self, inner: ast.expr, arguments: list[ast.expr]) -> tuple[str, Any, bool]:
        function_text, function, _ = self._value(inner)
        texts, values, given = zip(*map(self._value, arguments), strict=True)
        text = f"{function_text}({', '.join(texts)})"
        if text not in self._found:
            result = function(*values)
            is_watched = (
                any(given) or function in _OF_WHOLES
            )  # else what it asks is anybody's guess
            if function is hasattr and not any(given) and own_fields(values[0]):
                self._watch_kind(values[0])
                self._watch.items(own_fields(values[0]))
                self._watch_class(type(values[0]), values[1])
            elif isinstance(result, _PLAIN) and not is_watched:
                self._watch.add_loose(lambda: _is_like(_result(function, values), result))
            for value, is_given in zip(values, given, strict=True):
                if not is_given and function is not hasattr:
                    self._watch_whole(value)
            self._found[text] = result, any(given)
        return text, *self._found[text]

    def _watch_attribute(self, holder: Any, name: str, value: Any, given: bool) -> None:
        if _is_method(value, holder) and name not in own_fields(holder):
            return  # of a class that Python itself has
        if isinstance(holder, ModuleType):
            self._watch.entries(vars(holder), (name,))
        elif isinstance(holder, type):
            self._watch_class(holder, name)
        elif isinstance(holder, FunctionType):
            self._watch_function(holder, name)
        elif isinstance(holder, CellType):
            words = self._watch.layout and cell_words(holder, self._watch.layout)
            self._watch.add(lambda: holder.cell_contents is value, words or [], holder)
        elif isinstance(holder, torch.nn.Module):
            if name not in _SEALED:
                self._watch.entries(holder.__dict__, (name,))
        elif given:
            self._watch_class(type(holder), name)
        elif name in own_fields(holder):
            self._watch_kind(holder)
            self._watch.entries(own_fields(holder), (name,))
            self._watch_class(type(holder), name)
        else:
            self._watch.add_loose(lambda: _is_like(getattr(holder, name, ABSENT), value))

    def _watch_class(self, kind: type, name: str) -> None:
        for base in kind.__mro__:
            if not is_foreign_class(base):
                self._watch.entries(held(vars(base)), (name,))
        bases = kind.__bases__
        words = self._watch.layout and class_words(kind, self._watch.layout)
        self._watch.add(lambda: kind.__bases__ is bases, words or [], kind)

    def _watch_kind(self, value: Any) -> None:
        kind = type(value)
        words = self._watch.layout and [id(value) + self._watch.layout.kind]
        self._watch.add(lambda: type(value) is kind, words or [], value)

    def _watch_function(self, function: FunctionType, name: str) -> None:
        if name not in _OF_CODE:
            self._watch.entries(function.__dict__, (name,))
            return
        before = getattr(function, name)
        words = self._watch.layout and function_words(function, self._watch.layout)
        self._watch.add(lambda: getattr(function, name) is before, words or [], function)

    def _watch_item(self, holder: Any, key: Any, value: Any, given: bool) -> None:
        if holder is self._scope["G"]:
            if key not in self._aliases:
                self._watch.entries(self._own.__globals__, (key,))
        elif isinstance(holder, dict | MappingProxyType):
            if not given:
                self._watch.entries(held(holder), (key,))
        elif not isinstance(holder, tuple) and not given:
            self._watch.add_loose(lambda: _is_like(_item(holder, key), value))

    def _watch_whole(self, value: Any) -> None:
        if isinstance(value, dict | MappingProxyType):
            self._watch.items(held(value))
        elif isinstance(value, list):
            self._watch.sequence(value)
        elif not isinstance(value, tuple | type | int | str):
            self._watch_kind(value)
            if hasattr(value, "__len__"):
                count = len(value)
                self._watch.add_loose(lambda: len(value) == count)


def _sealed(given: Mapping[str, Any], model: Any, loose: Collection[str]) -> Callable[[str], bool]:
    """Tells of an expression whether it leads to no more than a module's attribute, such as
    `self._modules['norm'].eps`."""
    names = [name for name, value in given.items() if value is model]
    names += [
        f"{name}[{number}]"
        for name, value in given.items()
        if type(value) is tuple
        for number, item in enumerate(value)
        if item is model
    ]
    roots = "|".join(map(re.escape, names)) or "(?!)"
    pattern = re.compile(rf"(?:type\()?(?:{roots})(?:\._modules\['[^']*'\])*{_ATTRIBUTE}\)?")

    def is_sealed(text: str) -> bool:
        found = pattern.fullmatch(text)
        if found is None:
            return False
        name = found["name"] or ""
        return name not in loose and not has_volatile_name(name)

    return is_sealed


def _parsed(expressions: Sequence[str]) -> list[ast.expr]:
    """All expressions, parsed at once."""
    tree = ast.parse(f"({', '.join(expressions)},)" if expressions else "()", mode="eval")
    return tree.body.elts if isinstance(tree.body, ast.Tuple) else []


def _is_method(value: object, holder: object) -> bool:
    """Whether a value is a method of its holder's that was written in C."""
    if not isinstance(value, BuiltinMethodType) or isinstance(holder, ModuleType):
        return False
    return value.__self__ is holder or value.__self__ is type(holder)


def _result(function: Callable[..., Any], values: Sequence[Any]) -> Any:
    try:
        return function(*values)
    except Exception:  # a value may be of another kind now
        return ABSENT


def _item(holder: Any, key: Any) -> Any:
    try:
        return holder[key]
    except LookupError:
        return ABSENT


def _is_like(now: Any, before: Any) -> bool:
    if now is before:
        return True
    return type(now) is type(before) and isinstance(now, _PLAIN) and bool(now == before)
