"""What must be equal when a function is loaded, beside the model that it was compiled for.

Dynamo goes through code that the model's digest does not reach: methods of objects that come as
arguments, such as a cache of keys and values. That code is pinned by its digest, with all that it
reaches; and the libraries that were gone through by their versions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from cachesvc.core.digest import Json
from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.library import Library
from cachesvc.runtime.functions import home, is_foreign, layers
from cachesvc.runtime.model import Reading, read_functions

_FROZEN = "<frozen "  # a part of Python itself


class Unpinned(TccacheError):
    """Code was gone through that another process could not find."""


def pins_of(reading: Reading, traced: Sequence[CodeType]) -> dict[str, Json]:
    """The pins of a function, whose model was read so. Raises Unpinned."""
    known = _with_inner(reading.reach.functions)
    names: set[str] = set()
    tops: set[str] = set()
    for code in traced:
        if code.co_filename.startswith(_FROZEN):
            continue
        module = _module_of(code)
        if module is None or not is_foreign(module):
            tops.add((module or "").partition(".")[0])
            if code not in known:
                names.add(_place(code, module))
    return {
        "model": reading.components.digest,
        "traced": [*sorted(names)],
        "code": read_places(tuple(sorted(names))).components.digest if names else "",
        "versions": dict(_versions(tops)),
        "torch": library_of(reading).digest(),
    }


class Pins:
    """Compares pins with what is here; what was read once is not read again."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._torch = library_of(reading).digest()
        self.readings: dict[tuple[str, ...], Reading] = {}
        """What was read besides, by the names of the functions."""

    def difference(self, pins: Mapping[str, Any]) -> str:
        """Why a function with these pins must not be used here; empty if it may."""
        if pins["model"] != self._reading.components.digest:
            return "it was compiled for another model"
        for name, version in pins["versions"].items():
            here = _version(name)
            if here != version:
                return f"{name} is {here} here and was {version}"
        if pins["torch"] != self._torch:
            return "functions inside torch were replaced"
        names = tuple(pins["traced"])
        if names and self._read(names).components.digest != pins["code"]:
            return f"the code of {names[0]}{' and others' if names[1:] else ''} is not what it was"
        return ""

    def _read(self, names: tuple[str, ...]) -> Reading:
        if names not in self.readings:
            self.readings[names] = read_places(names)
        return self.readings[names]


def library_of(reading: Reading) -> Library:
    """What of torch a model goes through that was read so."""
    return Library(
        {type(module) for structure in reading.structures for module in structure.modules}
    )


def read_places(names: tuple[str, ...]) -> Reading:
    """What functions are, told by module and name, with all that they reach. Raises Unpinned."""
    return read_functions([_found(name) for name in names])


def _module_of(code: CodeType) -> str | None:
    """The module that a code object was written in."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == code.co_filename:
            return name
    return None


def _place(code: CodeType, module: str | None) -> str:
    """Module and name of the function that a code object is, or is a part of."""
    name = getattr(code, "co_qualname", code.co_name)
    place = f"{module}:{name.partition('.<locals>')[0]}"
    if module is None or code not in _with_inner(_layers_at(place)):
        where = f"{code.co_filename}:{code.co_firstlineno}"
        raise Unpinned(f"the compiler went through {name} ({where}), which another process lacks")
    return place


def _with_inner(functions: Iterable[FunctionType]) -> set[CodeType]:
    """The code of functions, with that of all functions which it makes."""
    found: set[CodeType] = set()
    waiting = [function.__code__ for function in functions]
    while waiting:
        code = waiting.pop()
        if code not in found:
            found.add(code)
            waiting += [item for item in code.co_consts if isinstance(item, CodeType)]
    return found


def _found(place: str) -> FunctionType:
    found = _layers_at(place)
    if not found:
        raise Unpinned(f"there is no {place}")
    return found[0]


def _layers_at(place: str) -> tuple[FunctionType, ...]:
    module, _, name = place.partition(":")
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = vars(value).get(part) if isinstance(value, type) else getattr(value, part, None)
    return tuple(f for f in layers(value) if not is_foreign(home(f)))


def _versions(tops: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in sorted(tops):
        version = _version(name)
        if version is not None:
            yield name, version


def _version(name: str) -> str | None:
    version = getattr(sys.modules.get(name), "__version__", None)
    return version if isinstance(version, str) else None
