"""Reading untrusted JSON: every issue is collected, nothing is guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from cachesvc.core.digest import canonical_json
from cachesvc.core.errors import IntegrityError

T = TypeVar("T")
Extra = tuple[tuple[str, str], ...]
"""Fields that this version does not know: (name, canonical JSON text), kept when re-published."""

MAX_ISSUES = 20
MAX_INTEGER = (1 << 63) - 1
_MISSING: Any = object()


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
    """The JSON object in `data`; IntegrityError for anything else, duplicate names included."""
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{what} is not JSON: {error or 'nested too deep'}") from None
    if not isinstance(value, dict):
        raise IntegrityError(f"{what} is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name appears twice in one object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


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
        value = self._take(name, str, "")
        if pattern is not None and not pattern.fullmatch(value):
            self.issues.add(self.at(name), f"{value[:80]!r} has not the form {pattern.pattern}")
        return value

    def optional_text(self, name: str, pattern: re.Pattern[str]) -> str | None:
        return None if self._absent(name) else self.text(name, pattern)

    def integer(self, name: str) -> int:
        value = self._take(name, int, 0)
        if isinstance(value, bool) or not 0 <= value <= MAX_INTEGER:
            self.issues.add(self.at(name), f"{str(value)[:40]} is not a size from 0 to 2^63-1")
            return 0
        return value

    def flag(self, name: str) -> bool:
        return False if self._absent(name) else self._take(name, bool, False)

    def optional_number(self, name: str) -> float | None:
        if self._absent(name):
            return None
        value = self._take(name, (int, float), 0.0)
        if isinstance(value, bool) or not 0 <= value < 1e12:
            self.issues.add(self.at(name), f"{str(value)[:40]} is not a number from 0 to 1e12")
            return None
        return float(value)

    def texts(self, name: str, pattern: re.Pattern[str] | None = None) -> tuple[str, ...]:
        values = self._take(name, list, [])
        for index, value in enumerate(values):
            if not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
                self.issues.add(
                    f"{self.at(name)}[{index}]", f"{value!r:.80} has not the form asked"
                )
        return tuple(value for value in values if isinstance(value, str))

    def mapping(self, name: str) -> dict[str, str]:
        """An object whose values are all text."""
        values = self._take(name, dict, {})
        if not all(isinstance(value, str) for value in values.values()):
            self.issues.add(self.at(name), "holds a value that is not text")
            return {}
        return values

    def each(self, name: str, parse: Callable[[Fields], T]) -> tuple[T, ...]:
        """The objects of a list, each parsed by `parse`."""
        return tuple(
            parse(Fields(value, f"{self.at(name)}[{index}]", self.issues))
            for index, value in enumerate(self.raw_list(name))
        )

    def raw_list(self, name: str) -> list[Any]:
        value: list[Any] = self._take(name, list, [])
        return value

    def child(self, name: str) -> Fields:
        return Fields(self._take(name, dict, {}), self.at(name), self.issues)

    def optional_child(self, name: str) -> Fields | None:
        return None if self._absent(name) else self.child(name)

    def rest(self) -> Extra:
        """The fields that nothing has read."""
        return tuple(sorted(self._unread()))

    def _unread(self) -> Iterator[tuple[str, str]]:
        for name, value in self._values.items():
            if name not in self._read:
                yield name, canonical_json(value).decode()

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


def with_extra(fields: dict[str, Any], extra: Extra) -> dict[str, Any]:
    """`fields` and the unknown fields beside them, as plain JSON values."""
    return {**{name: json.loads(text) for name, text in extra}, **fields}
