"""Reading untrusted JSON: every issue is collected, nothing is guessed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from cachesvc.core.digest import canonical_json
from cachesvc.core.errors import IntegrityError
from cachesvc.core.spelled import spelled

T = TypeVar("T")
Extra = tuple[tuple[str, str], ...]
"""Fields that this version does not know: (name, canonical JSON text), kept when re-published."""

MAX_ISSUES = 20
MAX_COUNTED = 10_000
"""With so many issues nobody reads on: a list of millions that are wrong would take minutes."""

MAX_VALUES = 4_000_000
"""More than any manifest of 64 MiB needs; the smallest values take up forty times their text."""

MAX_INTEGER = (1 << 63) - 1
MAX_DEPTH = 16
"""How deep an unknown field may nest, so that it can always be written again."""

_MISSING: Any = object()
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Issues:
    """The issues found so far in one document; at most MAX_ISSUES are worded."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.count = 0

    def add(self, where: str, what: str) -> None:
        self.count += 1
        if self.count <= MAX_ISSUES:
            self.found.append(f"{where}: {what}" if where else what)

    def raise_if_any(self, what: str) -> None:
        """Raises IntegrityError naming all issues, if there are any."""
        if self.count:
            more = f" and {self.count - MAX_ISSUES} more" if self.count > MAX_ISSUES else ""
            raise IntegrityError(f"{what} is not valid: {'; '.join(self.found)}{more}", self.found)


def load_object(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `data`; IntegrityError for anything else.

    Also refused is what JSON libraries read differently or cannot write again: a name that comes
    twice, NaN and infinities (also 1e999), and half of a surrogate pair. And what may hold more
    than MAX_VALUES values, by its commas and brackets.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise IntegrityError(f"{what} holds more than {MAX_VALUES} values")
    try:
        text = data.decode()
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite
        )
        if _SURROGATE.search(text):
            canonical_json(value)
    except UnicodeError:
        raise IntegrityError(f"{what} is not JSON: it is not valid Unicode") from None
    except ValueError as error:
        raise IntegrityError(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise IntegrityError(f"{what} is not JSON: it is nested too deep") from None
    if not isinstance(value, dict):
        raise IntegrityError(f"{what} is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name appears twice in one object")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is not a finite number")
    return number


def shown(value: object) -> str:
    """A JSON value for people, in a few characters; what it holds is not looked into."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return f"{value[:80]!r}" if isinstance(value, str) else f"{value!s:.40}"


def named(name: str) -> str:
    """The beginning of a field's name, for people."""
    return spelled(name[:80])


class Fields:
    """The fields of one JSON object, each read once by name and kind.

    A field that is missing or of another kind is noted in `issues` and answered with a harmless
    value of the right type, so that reading goes on and finds the next issue too.
    """

    def __init__(self, value: object, where: str, issues: Issues) -> None:
        self.where = where
        self.issues = issues
        self._read: set[str] = set()
        self._values: dict[str, Any] = {}
        if isinstance(value, dict):
            self._values = value
        else:
            issues.add(where, "is not an object")

    def at(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def text(self, name: str, pattern: re.Pattern[str] | None = None) -> str:
        before = self.issues.count
        value = self._take(name, str, "")
        if pattern is not None and self.issues.count == before and not pattern.fullmatch(value):
            self.issues.add(self.at(name), f"{shown(value)} has not the form {pattern.pattern}")
        return value

    def optional_text(self, name: str, pattern: re.Pattern[str]) -> str | None:
        return None if self._absent(name) else self.text(name, pattern)

    def integer(self, name: str) -> int:
        value = self._take(name, int, 0)
        if not _is_size(value):
            self.issues.add(self.at(name), f"{shown(value)} is not a size from 0 to 2^63-1")
            return 0
        return value

    def optional_number(self, name: str) -> float | None:
        if self._absent(name):
            return None
        value = self._take(name, (int, float), 0.0)
        if isinstance(value, bool) or not 0 <= value < 1e12:
            self.issues.add(self.at(name), f"{shown(value)} is not a number from 0 to 1e12")
            return None
        return float(value)

    def texts(self, name: str, pattern: re.Pattern[str] | None = None) -> tuple[str, ...]:
        values = self._take(name, list, [])
        for index, value in enumerate(self._some(values)):
            if not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
                self.issues.add(
                    f"{self.at(name)}[{index}]", f"{shown(value)} has not the form asked"
                )
        return tuple(value for value in values if isinstance(value, str))

    def mapping(self, name: str) -> dict[str, str]:
        """An object whose values are all text."""
        values = self._take(name, dict, {})
        for key, value in self._some(values.items()):
            if not isinstance(value, str):
                self.issues.add(f"{self.at(name)}.{named(key)}", "is not text")
        return {key: value for key, value in values.items() if isinstance(value, str)}

    def each(
        self,
        name: str,
        parse: Callable[[Fields], T],
        quick: Callable[[Any], T | None] = lambda value: None,
    ) -> tuple[T, ...]:
        """The objects of a list, each parsed by `quick` where that gives one, else by `parse`."""
        return tuple(
            quick(value) or parse(Fields(value, f"{self.at(name)}[{index}]", self.issues))
            for index, value in enumerate(self._some(self._take(name, list, [])))
        )

    def optional_each(self, name: str, parse: Callable[[Fields], T]) -> tuple[T, ...]:
        """The same; none where the list is absent."""
        return () if self._absent(name) else self.each(name, parse)

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of sizes."""
        values = self._take(name, list, [])
        for index, value in enumerate(self._some(values)):
            if not _is_size(value):
                what = f"{shown(value)} is not a size from 0 to 2^63-1"
                self.issues.add(f"{self.at(name)}[{index}]", what)
        return tuple(value for value in values if _is_size(value))

    def child(self, name: str) -> Fields:
        return Fields(self._take(name, dict, {}), self.at(name), self.issues)

    def optional_child(self, name: str) -> Fields | None:
        return None if self._absent(name) else self.child(name)

    def rest(self) -> Extra:
        """The fields that nothing has read."""
        return tuple(sorted(self._unread()))

    def _unread(self) -> Iterator[tuple[str, str]]:
        for name, value in self._some(self._values.items()):
            if name in self._read:
                continue
            if _is_deep(value):
                self.issues.add(self.at(named(name)), f"is nested deeper than {MAX_DEPTH}")
            else:
                yield name, canonical_json(value).decode()

    def _some(self, values: Iterable[T]) -> Iterator[T]:
        """The values, until so much is wrong that nothing can come of it."""
        for value in values:
            if self.issues.count > MAX_COUNTED:
                return
            yield value

    def _absent(self, name: str) -> bool:
        self._read.add(name)
        return self._values.get(name) is None

    def _take(self, name: str, kind: type[T] | tuple[type[T], ...], default: T) -> T:
        self._read.add(name)
        value = self._values.get(name, _MISSING)
        if isinstance(value, kind):
            return value
        self.issues.add(self.at(name), "is missing" if value is _MISSING else "is of a wrong kind")
        return default


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_INTEGER


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [inner for item in level for inner in _inside(item)]
    return any(isinstance(item, dict | list) for item in level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def with_extra(fields: dict[str, Any], extra: Extra) -> dict[str, Any]:
    """`fields` and the unknown fields beside them, as plain JSON values."""
    return {**{name: json.loads(text) for name, text in extra}, **fields}
