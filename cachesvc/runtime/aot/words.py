"""Whether any of some thousand Python objects has changed, in a few microseconds.

CPython gives each dictionary a number that is another one after every change (PEP 509), and other
objects hold what they refer to at fixed places: their class, their dictionary, a function's code.
Reading these words of memory at once tells of any change: no object is asked, none is copied. Where
Python keeps no such numbers (it is tried out, not assumed), or numpy is missing, `layout` is None.

The objects must be kept alive by whoever watches them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

_WORD = 8
_DICT_VERSION = 3  # words from the start of a dictionary: count, type, size, version
_LONGEST = 64
_FIRST = -4  # an object's dictionary lies before it, from Python 3.11 on
_TRIES = 64  # more than it takes until Python runs its quick ways of setting attributes


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the words lie, in bytes from the address of an object.

    `version` of a dictionary; `kind` and `fields` (class and dictionary) of an object; `bases` of a
    class; `code`, `defaults` and `named` (defaults by keyword) of a function; `content` of a cell.
    """

    version: int
    kind: int
    fields: int
    bases: int
    code: int
    defaults: int
    named: int
    content: int


@functools.cache
def layout() -> Layout | None:
    """The places of the words in this Python; None if it has others, or none."""
    if importlib.util.find_spec("numpy") is None:
        return None
    if platform.python_implementation() != "CPython" or ctypes.sizeof(ctypes.c_void_p) != _WORD:
        return None
    version = _DICT_VERSION * _WORD
    return _layout(version) if _tells_changes(version) else None


def _layout(version: int) -> Layout | None:
    content, instance = object(), _Probe()

    def probe(value: object = "default", *, named: object = "named") -> object:
        return content if value else named

    found = [
        _offset(instance, _Probe),
        _offset(instance, instance.__dict__),
        _offset(_Probe, _Probe.__bases__),
        _offset(probe, probe.__code__),
        _offset(probe, probe.__defaults__),
        _offset(probe, probe.__kwdefaults__),
        _offset((probe.__closure__ or (None,))[0], content),
    ]
    offsets = [offset for offset in found if offset is not None]
    return Layout(version, *offsets) if len(offsets) == len(found) else None


def _offset(holder: object, value: object) -> int | None:
    """Where an object holds a reference to another."""
    size = min(max(type(holder).__basicsize__ // _WORD, 2), _LONGEST)
    words = (n for n in range(_FIRST if hasattr(holder, "__dict__") else 1, size))
    found = [n for n in words if _read(id(holder) + n * _WORD) == id(value)]
    return found[0] * _WORD if len(found) == 1 else None


def _read(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


class _Probe:
    attribute = 0


def _tells_changes(version: int) -> bool:
    """Whether every way to change a dictionary gives it another number."""
    instance = _Probe()
    fields = instance.__dict__
    plain: dict[str, object] = {"a": 1, "b": 2}
    seen = {_read(id(plain) + version), _read(id(fields) + version)}
    changes: tuple[Callable[[], object], ...] = (
        lambda: plain.update(c=3),
        lambda: plain.__setitem__("a", 2),
        lambda: plain.pop("b"),
        lambda: plain.__delitem__("a"),
        lambda: plain.setdefault("d", 1),
        plain.clear,
    )
    for change in changes:
        change()
        seen.add(_read(id(plain) + version))
    for number in range(_TRIES):
        instance.attribute = number
        seen.add(_read(id(fields) + version))
        instance.__dict__["other"] = number
        seen.add(_read(id(fields) + version))
    steady = _read(id(fields) + version) == _read(id(fields) + version)
    return steady and len(seen) == 2 + len(changes) + 2 * _TRIES


class Words:
    """The words of some objects, read all at once."""

    def __init__(self, addresses: Sequence[int]) -> None:
        import numpy

        self._equal: Any = numpy.array_equal
        self._different: Any = numpy.flatnonzero
        lowest, highest = min(addresses), max(addresses)
        length = (highest - lowest) // _WORD + 1
        memory: Any = (ctypes.c_uint64 * length).from_address(lowest)
        self._memory = numpy.frombuffer(memory, dtype=numpy.uint64)
        self._places = (numpy.array(addresses, dtype=numpy.int64) - lowest) // _WORD
        self._before = self._memory[self._places]

    def moved(self) -> Any:
        """The words as they are, if they are not as they were; else None."""
        now = self._memory[self._places]
        return None if self._equal(now, self._before) else now

    def which(self, now: Any) -> list[int]:
        """The indices of those that are not as they were."""
        found: list[int] = self._different(now != self._before).tolist()
        return found

    def settle(self, now: Any) -> None:
        """From now on they count as they were at that look."""
        self._before = now


def dict_words(value: dict[Any, Any], where: Layout) -> list[int]:
    """The address of a dictionary's number."""
    return [id(value) + where.version]


def object_words(value: object, where: Layout) -> list[int]:
    """The addresses of an object's class and dictionary."""
    return [id(value) + where.kind, id(value) + where.fields]


def class_words(kind: type, where: Layout) -> list[int]:
    """The address of a class's bases."""
    return [id(kind) + where.bases]


def function_words(function: FunctionType, where: Layout) -> list[int]:
    """The addresses of a function's code, defaults, and defaults by keyword."""
    return [id(function) + place for place in (where.code, where.defaults, where.named)]


def cell_words(cell: CellType, where: Layout) -> list[int]:
    """The address of what a cell holds."""
    return [id(cell) + where.content]
