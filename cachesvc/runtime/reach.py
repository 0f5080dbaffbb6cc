"""What a model's code reaches outside torch: functions, classes, globals, closures, custom ops.

Names are followed, nothing is run. A name that code mentions may be a member of any class that
was met, so a method counts once its class and its name were. Code comes first and values
second: only when all reachable code is known is it known which values that code writes itself,
and those are state, not constants.
"""

from __future__ import annotations

import logging
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from cachesvc.core.digest import Json, canonical_json
from cachesvc.runtime.bytecode import Import, Uses, uses
from cachesvc.runtime.code import class_name, code_digest, module_name
from cachesvc.runtime.constants import is_constant
from cachesvc.runtime.describe import Describer
from cachesvc.runtime.functions import (
    closure,
    defaults,
    home,
    is_followed,
    is_foreign,
    is_foreign_class,
    is_found_by_name,
    layers,
)
from cachesvc.runtime.imports import imported_code
from cachesvc.runtime.scope import resolve, steps
from cachesvc.runtime.state import CONSTRUCTORS, State

_MAX_FUNCTIONS = 20_000
# Members that Python calls by itself, but never while a model runs.
_ASIDE = frozenset(
    (
        *("__init_subclass__", "__class_getitem__", "__set_name__", "__repr__", "__str__"),
        *("__format__", "__del__", "__getstate__", "__reduce__", "__reduce_ex__", "__sizeof__"),
        *("__copy__", "__deepcopy__", "__dir__"),
    )
)


class Reach:
    """A walk over what code can execute; `parts` are the components that it finds.

    `modules` are the modules that lie in globals, closures and plain attributes, with the places
    where each was met first: the caller describes them and takes them off the list. `names` are
    the names that were looked up, each with the dictionaries of those that code reads it from.
    """

    def __init__(self) -> None:
        self.state = State()
        self.describer = Describer(self.state)
        self.names: dict[int, tuple[dict[str, Any], dict[str, None]]] = {}
        self.modules: list[tuple[torch.nn.Module, str]] = []
        self._parts: dict[str, list[Json]] = {}
        self._code: deque[tuple[types.FunctionType, type | None, str]] = deque()
        self._values: deque[Callable[[], None]] = deque()
        self._uses: dict[int, Uses] = {}
        self._reached: dict[tuple[int, type | None], types.FunctionType] = {}
        self._codes: set[int] = set()
        self._followed: dict[tuple[int, str], object] = {}
        self._classes: dict[tuple[type, bool], None] = {}
        self._mentioned: set[str] = {"forward"}
        self._waiting: dict[str, list[tuple[type, object]]] = {}
        self._facts: dict[tuple[type, str], Json] = {}
        self._globals: dict[str, None] = {}
        self._imports: set[tuple[str, Import]] = set()
        self._built: set[tuple[type, str]] = set()
        self._unbuilt: list[type] = []

    def later(self, value: Callable[[], None]) -> None:
        """Describes a value once all code that is known by then has been read."""
        self._values.append(value)

    def run(self) -> None:
        """Follows everything met so far, and what is met on the way."""
        while self._code or self._values:
            while self._code:
                self._read(*self._code.popleft())
            if self._unbuilt:
                self._note_constructions()
            if self._values:
                self._values.popleft()()
            for value, place in self.describer.found:
                self.follow(value, place)
            self.describer.found.clear()

    def parts(self) -> Iterator[tuple[str, Json]]:
        """The components, once everything was followed."""
        yield from self.describer.parts.items()
        for name, values in self._parts.items():
            yield name, values[0] if len(values) == 1 else sorted(values, key=canonical_json)
        by_name: dict[str, list[Json]] = {}
        for kind, _ in self._classes:
            by_name.setdefault(class_name(kind), []).append(self._members(kind))
        for name, codes in by_name.items():
            different = {canonical_json(code): code for code in codes}
            yield f"code {name}", [different[key] for key in sorted(different)]

    def follow(self, value: Any, place: str = "") -> None:
        """Follows a function or what stands for one, a class, or a module in a global."""
        is_module = issubclass(type(value), torch.nn.Module)
        key = (id(value), place if is_module else "")
        if key in self._followed:
            return
        self._followed[key] = value
        if is_module:
            self.modules.append((value, place.removeprefix("global ")))
        elif issubclass(type(value), type):
            self.follow_class(value)
        elif is_followed(value):
            self._follow_function(value)

    def follow_class(self, kind: type, *, named: bool = False) -> None:
        """Follows what instances of a class run; `named` in code, they may be made there."""
        for base in kind.__mro__:
            if is_foreign_class(base) or (base, named) in self._classes:
                continue
            if (base, True) in self._classes:
                continue
            self._classes.pop((base, False), None)
            self._classes[base, named] = None
            self._unbuilt.append(base)
            for name, value in tuple(vars(base).items()):
                if is_constant(value):
                    continue
                mentioned = name in self._mentioned and name not in CONSTRUCTORS
                if mentioned or self._runs_by_itself(base, name, value, named):
                    self._follow_member(base, name, value)
                elif name not in CONSTRUCTORS:
                    self._waiting.setdefault(name, []).append((base, value))

    def _follow_member(self, owner: type, name: str, value: object) -> None:
        own = layers(value)
        for function in own:
            self.follow_code(function, owner, name)
        if own:
            self.later(lambda: self._note_member(owner, name, self.describer.function(value)))
        elif not (name.startswith("__") and name.endswith("__")):
            self.later(lambda: self._content(owner, name, value))

    def _content(self, owner: type, name: str, value: object) -> None:
        """What a class holds besides its functions, such as a table."""
        related = [kind for kind, _ in self._classes if issubclass(kind, owner)]
        if not any(self.state.has_field(kind, name, value) for kind in related):
            place = f"class {class_name(owner)}.{name}"
            self._note_member(owner, name, self.describer.describe(value, place))

    def _note_member(self, owner: type, name: str, facts: Json) -> None:
        self._facts[owner, name] = facts

    def follow_code(
        self, function: types.FunctionType, owner: type | None = None, name: str = ""
    ) -> None:
        """Follows one function; `owner` is the class that it is a member of."""
        key = (id(function), owner)
        if key not in self._reached and len(self._reached) < _MAX_FUNCTIONS:
            self._reached[key] = function
            self._code.append((function, owner, name))

    def is_made_inside(self, value: object) -> bool:
        """Whether a function was defined by code that the model itself runs, as its own hooks."""
        return any(id(layer.__code__) in self._codes for layer in layers(value))

    def _runs_by_itself(self, kind: type, name: str, value: object, named: bool) -> bool:
        if not layers(value):
            return False
        if issubclass(kind, torch.autograd.Function):
            return True
        if name in CONSTRUCTORS:
            return named
        return name.startswith("__") and name.endswith("__") and name not in _ASIDE

    def _follow_function(self, value: Any) -> None:
        own = layers(value)
        owner = _owner(own[0]) if own else None
        if owner is not None:
            self.follow_class(owner)
        elif is_found_by_name(value):
            name = f"function {module_name(own[0].__module__)}.{own[0].__qualname__}"
            self.later(lambda: self.note(name, self.describer.function(value)))
        for function in own:
            self.follow_code(function, owner, function.__name__)

    def note(self, name: str, value: Json) -> None:
        """Adds a component, or one more value to what has its name."""
        values = self._parts.setdefault(name, [])
        if value not in values:
            values.append(value)

    def _read(self, function: types.FunctionType, owner: type | None, name: str) -> None:
        found = self._used(function)
        self._codes.update(map(id, found.codes[1:]))  # those that it makes functions of
        for _, item in (*closure(function), *defaults(function)):
            inner = layers(item)
            if issubclass(type(item), type):
                self.follow(item)
            elif owner is not None and inner and issubclass(type(item), types.FunctionType):
                for layer in inner:
                    self.follow_code(layer, owner, name)
            elif inner:
                self.follow(item)
        if is_foreign(home(function)):
            return
        self._mention(found)
        self.state.note(function, owner, name, found)
        for chain in found.reads:
            self._global(function, chain)
        for statement in found.imports:
            self._import(str(function.__globals__.get("__package__") or ""), statement)

    def _used(self, function: types.FunctionType) -> Uses:
        key = id(function.__code__)
        if key not in self._uses:
            self._uses[key] = uses(function.__code__)
        return self._uses[key]

    def _note_constructions(self) -> None:
        """Notes the globals that constructors fill, with the methods that they call by name."""
        kinds, self._unbuilt = self._unbuilt, []
        members = [
            (kind, name, value)
            for kind in kinds
            for name, value in vars(kind).items()
            if not is_constant(value)
        ]
        names, seen = {*CONSTRUCTORS}, 0
        while len(names) > seen:
            seen = len(names)
            for kind, name, value in members:
                if name in names and (kind, name) not in self._built:
                    self._built.add((kind, name))
                    for function in layers(value):
                        found = self._used(function)
                        names |= found.mentioned
                        self.state.note_construction(function, found)

    def _mention(self, found: Uses) -> None:
        for name in sorted(found.mentioned - self._mentioned):
            for kind, value in self._waiting.pop(name, ()):
                self._follow_member(kind, name, value)
        self._mentioned |= found.mentioned

    @property
    def functions(self) -> list[types.FunctionType]:
        """All that was followed."""
        return list({id(function): function for function in self._reached.values()}.values())

    @property
    def classes(self) -> list[type]:
        """The same of classes."""
        return list(dict.fromkeys(kind for kind, _ in self._classes))

    def _global(self, function: types.FunctionType, chain: tuple[str, ...]) -> None:
        for scope, name in steps(function, chain):
            self.names.setdefault(id(scope), (scope, {}))[1][name] = None
        resolved = resolve(function, chain)
        if resolved is None or resolved[0] in self._globals:
            return
        label, value = resolved
        if issubclass(type(value), (types.ModuleType, logging.Logger)):
            return
        if type(value).__module__ in {"typing", "typing_extensions"}:
            return
        self._globals[label] = None
        if issubclass(type(value), type):
            self.follow_class(value, named=not issubclass(value, torch.nn.Module))
        elif layers(value):
            self.follow(value)
        self.later(lambda: self._bind(label, value))

    def _import(self, package: str, statement: Import) -> None:
        if (package, statement) not in self._imports:
            self._imports.add((package, statement))
            for name, code in imported_code(package, statement):
                self.note(f"import {name}", code_digest(code))

    def _bind(self, label: str, value: object) -> None:
        if self.state.has_global(label, value):
            return
        described = self.describer.describe(value, f"global {label}")
        # What has components of its own under this name needs none that says so.
        own: list[Json] = [f"function {label}", f"class {label}", label, {"at": f"global {label}"}]
        if described not in own:
            self.note(f"global {label}", described)

    def _members(self, kind: type) -> Json:
        return dict(sorted(self._described_members(kind)))

    def _described_members(self, kind: type) -> Iterator[tuple[str, Json]]:
        """The code of a class's own methods, what is bound to those that are reached, constants."""
        for name, value in tuple(vars(kind).items()):
            if (kind, name) in self._facts:
                yield name, self._facts[kind, name]
            elif layers(value) and name not in CONSTRUCTORS:  # what they do shows in what they made
                yield name, self.describer.codes(value)
            elif is_constant(value) and not name.startswith("__"):
                yield name, self.describer.describe(value)


def _owner(function: types.FunctionType) -> type | None:
    """The class that a function is a member of, as its name says, if that is so."""
    holder, _, name = function.__qualname__.rpartition(".")
    if not holder or "<" in holder:
        return None
    found: Any = sys.modules.get(str(function.__module__))
    for part in holder.split("."):
        found = vars(found).get(part) if found is not None else None
    is_member = issubclass(type(found), type) and function in layers(vars(found).get(name))
    return found if is_member else None
