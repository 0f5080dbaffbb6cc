"""Whether torch is as it was installed: anybody can put another function in the place of one.

The digest of a model follows what its code names, and stops at torch. What a program, a library or
a test has replaced inside torch is seen here: in the namespaces that models use, and in torch's
classes that their modules are of.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from gc import get_referents
from operator import is_
from typing import Any

import torch

from cachesvc.core.digest import digest_json
from cachesvc.runtime.aot.watch import ABSENT, Watch
from cachesvc.runtime.aot.words import class_words, function_words
from cachesvc.runtime.functions import home, is_foreign_class
from cachesvc.runtime.state import CONSTRUCTORS

_NATIVE = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_HOLDERS = (staticmethod, classmethod)
_COMPILER = "torch._compile"  # keeps itself out of some functions, once it is imported


class Library:
    """Those parts of torch that models of these classes go through."""

    def __init__(self, kinds: Iterable[type]) -> None:
        bases = dict.fromkeys(base for kind in kinds for base in kind.__mro__)
        self._classes = [torch.Tensor, *(b for b in bases if _is_of_torch(b))]
        self._modules = (torch, torch.nn.functional)

    def digest(self) -> str:
        """The digest of which function lies under which name; equal for one version of torch,
        unless somebody has changed it."""
        return digest_json(sorted([label, *_told(space)] for label, space in self._spaces()))

    def watch(self, watch: Watch) -> None:
        """Adds all that `digest` looks at."""
        for _, space in self._spaces():
            _watch_names(watch, space)
        for kind in self._classes:
            for value in tuple(vars(kind).values()):
                _watch_code(watch, value)
            _watch_bases(watch, kind)
        for value in tuple(vars(torch.nn.functional).values()):
            _watch_code(watch, value)

    def _spaces(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for module in self._modules:
            yield module.__name__, vars(module)
        for kind in self._classes:
            yield f"{kind.__module__}.{kind.__qualname__}", vars(kind)


def _is_of_torch(kind: type) -> bool:
    return is_foreign_class(kind) and kind.__module__.startswith("torch.")


def _told(space: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(_functions(space).items()):
        yield f"{name} {_place(value)}"


def _functions(space: Mapping[str, Any]) -> dict[str, Any]:
    """The functions in a namespace; its classes, modules and values may come and go."""
    found = {n: v for n, v in tuple(space.items()) if n not in CONSTRUCTORS}
    return {n: v for n, v in found.items() if isinstance(_inner(v), _KINDS)}


def _inner(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    return value.__func__ if isinstance(value, _HOLDERS) else value


_KINDS = (types.FunctionType, *_NATIVE)


def _place(value: Any) -> str:
    """Where a function was written, whatever name and module it may claim to have."""
    inner = _inner(value)
    if isinstance(inner, types.FunctionType) and home(inner) == _COMPILER:
        inner = getattr(inner, "__wrapped__", inner)
    if not isinstance(inner, types.FunctionType):
        return str(inner.__name__)
    code = inner.__code__
    return f"{home(inner)} {code.co_name} {code.co_firstlineno} {len(code.co_code)}"


def _watch_names(watch: Watch, space: Mapping[str, Any]) -> None:
    held = space if isinstance(space, dict) else next(iter(get_referents(space)), None)
    before = _functions(space)

    def same() -> bool:
        now = _functions(space)
        return len(now) == len(before) and all(
            map(is_, [now.get(name, ABSENT) for name in before], before.values())
        )

    watch.add(same, watch.words_of(held) if isinstance(held, dict) else [], held)


def _watch_code(watch: Watch, value: Any) -> None:
    """The code of a function, which can be replaced inside it."""
    function = _inner(value)
    if isinstance(function, types.FunctionType) and watch.is_new(function):
        code, defaults = function.__code__, function.__defaults__
        watch.add(
            lambda: function.__code__ is code and function.__defaults__ is defaults,
            [] if watch.layout is None else function_words(function, watch.layout),
        )


def _watch_bases(watch: Watch, kind: type) -> None:
    bases = kind.__bases__
    watch.add(
        lambda: kind.__bases__ is bases,
        [] if watch.layout is None else class_words(kind, watch.layout),
        kind,
    )
