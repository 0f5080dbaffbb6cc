"""What code writes itself: counters, caches, lists that grow. It is state and no constant."""

from __future__ import annotations

import logging
import types
from collections import deque
from typing import Any

from cachesvc.runtime.bytecode import Uses
from cachesvc.runtime.scope import resolve

CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__setstate__"})
_CONTAINERS = (dict, list, set, bytearray, deque, type(None))


class State:
    """The globals, attributes and closure values that the code seen so far writes."""

    def __init__(self) -> None:
        self._written: set[Any] = set()
        self._changed: set[Any] = set()

    def note(
        self, function: types.FunctionType, owner: type | None, name: str, found: Uses
    ) -> None:
        """Takes down what a function writes; `owner` has it as its member `name`."""
        for targets, noted in ((found.writes, self._written), (found.changes, self._changed)):
            for kind, *names in targets:
                if kind == "global":
                    self._note_global(noted, resolve(function, tuple(names)))
                elif kind == "any" or (kind == "self" and owner is None and _takes_self(function)):
                    noted.add(names[0])
                elif kind == "self" and owner is not None and name not in CONSTRUCTORS:
                    noted.add((owner, names[0]))
                elif kind in {"cell", "local"}:
                    noted.add((id(function.__code__), names[0]))

    def note_construction(self, function: types.FunctionType, found: Uses) -> None:
        """Takes down the globals, such as a registry of classes, that a constructor fills."""
        for targets, noted in ((found.writes, self._written), (found.changes, self._changed)):
            for kind, *names in targets:
                if kind == "global":
                    self._note_global(noted, resolve(function, tuple(names)))

    def _note_global(self, noted: set[object], found: tuple[str, Any] | None) -> None:
        """A changed container is changed under every name that modules have for it."""
        if found is not None:
            label, value = found
            by_name = noted is self._written or value is None
            noted.add(label if by_name else id(value))

    def has_global(self, label: str, value: object) -> bool:
        """Whether this global is written, or is a container that is changed in place."""
        return self._has([label, id(value)], value)

    def has_field(self, kind: type, name: str, value: object) -> bool:
        """The same of a field of an object."""
        return self._has([name, *((base, name) for base in kind.__mro__)], value)

    def names(self) -> frozenset[str]:
        """The names of all fields that are written or changed, of whatever object."""
        fields = (
            key[-1] if isinstance(key, tuple) else key for key in self._written | self._changed
        )
        return frozenset(name for name in fields if isinstance(name, str))

    def has_bound(self, function: types.FunctionType, name: str, value: object) -> bool:
        """The same of a value that a function has from its closure or its defaults."""
        if issubclass(type(value), logging.Logger):
            return True
        return self._has([(id(function.__code__), name)], value)

    def _has(self, keys: list[Any], value: object) -> bool:
        if not self._written.isdisjoint(keys):
            return True
        return issubclass(type(value), _CONTAINERS) and not self._changed.isdisjoint(keys)


def _takes_self(function: types.FunctionType) -> bool:
    return function.__code__.co_varnames[:1] == ("self",)
