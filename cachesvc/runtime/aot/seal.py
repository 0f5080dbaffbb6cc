"""Whether anything has changed that a model's digest was made of, asked before every call.

The digest says what a model is, and takes a tenth of a second. What it has read (modules, tensors,
configurations, functions, classes, globals) is sealed here: as long as the seal is whole, the
digest is what it was. What the model's own code writes is state and may change.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from operator import is_
from types import (
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import torch

from cachesvc.runtime.aot.library import Library
from cachesvc.runtime.aot.tensors import TensorSeal
from cachesvc.runtime.aot.watch import ABSENT, Watch, held
from cachesvc.runtime.aot.words import (
    cell_words,
    class_words,
    dict_words,
    function_words,
    object_words,
)
from cachesvc.runtime.constants import is_array, is_volatile
from cachesvc.runtime.functions import is_foreign_class, own_fields
from cachesvc.runtime.model import Reading, no_collection

_DICTS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OURS = frozenset({"_compiled_call_impl"})
_OF_CLASSES = frozenset({"__annotations__", "__doc__", "__abstractmethods__", "_abc_impl"})


_PLAIN = (SimpleNamespace, Namespace)


class Seal:
    """What one reading of a model has looked at, and the `library` that it goes through.

    `is_whole` takes microseconds, where Python keeps what it takes; else every value is compared.
    """

    def __init__(self, reading: Reading, library: Library | None = None) -> None:
        self._reading = reading
        self._watch = Watch()
        self._layout = self._watch.layout
        self._loose = reading.reach.state.names()
        self._slots: dict[type, list[MemberDescriptorType]] = {}
        with no_collection():
            tensors = list(self._watch_all(reading))
            if library is not None:
                library.watch(self._watch)
            self._tensors = TensorSeal(tensors)
            self._watch.close()

    def is_whole(self) -> bool:
        """Whether all is as it was; what was changed and changed back counts as it was."""
        return self._watch.is_whole() and self._tensors.are_same()

    @property
    def tensors(self) -> Collection[int]:
        """The ids of all tensors that are sealed."""
        return self._tensors.ids

    @property
    def loose(self) -> Collection[str]:
        """The names of what is not sealed, since the model's own code writes it."""
        return self._loose

    def _watch_all(self, reading: Reading) -> Iterator[torch.Tensor]:
        reach = reading.reach
        for structure in reading.structures:
            for module in structure.modules:
                yield from self._watch_module(module)
        for name, hooks in vars(torch.nn.modules.module).items():
            if name.startswith("_global_") and isinstance(hooks, dict):
                self._watch_items(hooks)
        for kind in reach.classes:
            self._watch_class(kind)
        for function in reach.functions:
            self._watch_function(function)
        for scope, names in reach.names.values():
            self._watch_names(scope, tuple(names))
        for value in reach.describer.kept:
            if isinstance(value, torch.Tensor):
                yield value
            else:
                self._watch_value(value)

    def _watch_module(self, module: torch.nn.Module) -> Iterator[torch.Tensor]:
        if not self._watch.is_new(module):
            return
        self._watch_object(module)
        fields = module.__dict__
        for name in (*_DICTS, *_HOOKS):
            if isinstance(inner := fields.get(name), dict):
                self._watch_items(inner)
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                yield tensor

    def _watch_value(self, value: Any) -> None:
        if isinstance(value, torch.nn.Module | type | CodeType):
            return  # watched as what they are where they are followed, or cannot change
        if isinstance(value, FunctionType):
            self._watch_function(value)
        elif self._watch.is_new(value):
            if isinstance(value, dict | MappingProxyType):
                self._watch.items(held(value))
            elif isinstance(value, list):
                self._watch.sequence(value)
            elif isinstance(value, set):
                before = set(value)
                self._watch.add_loose(lambda: value == before)
            elif isinstance(value, partial):
                self._watch.partial(value)
            elif is_array(value):
                self._watch.array(value)
            self._watch_own(value)

    def _watch_own(self, value: object) -> None:
        """An object by what it holds; one of torch's or Python's if it has a dictionary for that,
        as a namespace has."""
        kind = type(value)
        if is_foreign_class(kind) and not own_fields(value) and not issubclass(kind, _PLAIN):
            return
        if _is_of_python(kind) or (_has_fields(value) and not isinstance(value, ModuleType)):
            self._watch_object(value)

    def _watch_object(self, value: Any) -> None:
        """An object's class and dictionary, and what is in it but for the model's own state."""
        kind, fields, has_fields = type(value), own_fields(value), _has_fields(value)
        before = dict(fields)
        state = self._reading.reach.state

        def same() -> bool:
            if type(value) is not kind or (has_fields and own_fields(value) is not fields):
                return False
            return _same_but(
                fields,
                before,
                lambda n, v: n in _OURS or is_volatile(n, v) or state.has_field(kind, n, v),
            )

        words: list[int] = []
        if self._layout is not None:
            is_usual = has_fields and _is_of_python(kind)  # else they lie elsewhere, and stay there
            words = (
                object_words(value, self._layout) if is_usual else [id(value) + self._layout.kind]
            )
            words += dict_words(fields, self._layout) if has_fields else []
        self._watch.add(same, words)
        self._watch_slots(value, kind)

    def _watch_slots(self, value: Any, kind: type) -> None:
        slots = self._slots.get(kind)
        if slots is None:
            slots = self._slots[kind] = _slots_of(kind)
        if slots:
            before = [_slot(slot, value) for slot in slots]
            self._watch.add_loose(lambda: all(map(is_, [_slot(s, value) for s in slots], before)))

    def _watch_items(self, value: dict[Any, Any]) -> None:
        if self._watch.is_new(value):
            self._watch.items(value)

    def _watch_names(self, scope: dict[str, Any], names: tuple[str, ...]) -> None:
        """Some names of a module; what else it holds may change."""
        before = [scope.get(name, ABSENT) for name in names]
        state = self._reading.reach.state
        module = str(scope.get("__name__", ""))

        def same() -> bool:
            return all(
                now is then or state.has_global(f"{module}.{name}", then)
                for name, then in zip(names, before, strict=True)
                if (now := scope.get(name, ABSENT)) is not then
            )

        words = [] if self._layout is None else dict_words(scope, self._layout)
        self._watch.add(same, words)

    def _watch_class(self, kind: type) -> None:
        if not self._watch.is_new(kind):
            return
        fields, before, bases = held(vars(kind)), dict(vars(kind)), kind.__bases__
        state = self._reading.reach.state

        def same() -> bool:
            return kind.__bases__ is bases and _same_but(
                dict(vars(kind)),
                before,
                lambda n, v: n in _OF_CLASSES or state.has_field(kind, n, v),
            )

        words: list[int] = []
        if self._layout is not None:
            words = class_words(kind, self._layout) + dict_words(fields, self._layout)
        self._watch.add(same, words, fields)

    def _watch_function(self, function: FunctionType) -> None:
        if not self._watch.is_new(function):
            return
        code, defaults, named = function.__code__, function.__defaults__, function.__kwdefaults__
        words = [] if self._layout is None else function_words(function, self._layout)
        self._watch.add(
            lambda: (
                function.__code__ is code
                and function.__defaults__ is defaults
                and function.__kwdefaults__ is named
            ),
            words,
        )
        if named is not None:
            self._watch_items(named)
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=False):
            self._watch_cell(function, name, cell)

    def _watch_cell(self, function: FunctionType, name: str, cell: CellType) -> None:
        if not self._watch.is_new(cell):
            return
        before: object = ABSENT
        with suppress(ValueError):
            before = cell.cell_contents
        if self._reading.reach.state.has_bound(function, name, before):
            return
        words = [] if self._layout is None else cell_words(cell, self._layout)
        self._watch.add(lambda: _content(cell) is before, words)


def _is_of_python(kind: type) -> bool:
    """Whether a class was made by a `class` statement, which says where its objects' words lie."""
    return bool(kind.__flags__ & (1 << 9))


def _has_fields(value: object) -> bool:
    try:
        object.__getattribute__(value, "__dict__")
    except AttributeError:
        return False
    return True


def _slots_of(kind: type) -> list[MemberDescriptorType]:
    if is_foreign_class(kind):
        return []
    members = (value for base in kind.__mro__ for value in vars(base).values())
    return [value for value in members if isinstance(value, MemberDescriptorType)]


def _slot(slot: MemberDescriptorType, value: object) -> object:
    try:
        return slot.__get__(value)
    except AttributeError:
        return ABSENT


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _same_but(
    now: dict[str, Any], before: dict[str, Any], is_state: Callable[[str, object], bool]
) -> bool:
    """The same but for what may change."""
    for name in now.keys() | before.keys():
        value, then = now.get(name, ABSENT), before.get(name, ABSENT)
        if value is not then and not (is_state(name, value) or is_state(name, then)):
            return False
    return True
