"""The texts and numbers in a pickle, read without running it.

A pickle is a program for a small machine that may import and call anything. Here its instructions
are only listed: what a text instruction holds is taken, and nothing is imported, built or called.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_MAX_INSTRUCTIONS = 1_000_000
_BOOKKEEPING = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"})
_PUTS = frozenset({"BINPUT", "LONG_BINPUT", "PUT"})
_GETS = frozenset({"BINGET", "LONG_BINGET", "GET"})
_TEXTS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_NUMBERS = frozenset({"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4"})

Scalar = str | int


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a pickle says: every text once, in order, and the value behind each field name.

    A field is a text with a text or a number right behind it, as a dictionary is pickled; the
    first one of a name counts.
    """

    texts: tuple[str, ...]
    fields: Mapping[str, Scalar]

    def text(self, name: str) -> str:
        """The field's text; empty if it has none."""
        value = self.fields.get(name, "")
        return value if isinstance(value, str) else ""

    def lines(self, what: str) -> tuple[str, ...]:
        """The texts of the form `[HASH] WHAT...`: torch keeps what went into a key so."""
        return tuple(text for text in self.texts if text[:80].partition("] ")[2].startswith(what))


def scan(data: bytes) -> Scanned:
    """The texts and fields of a pickle. Raises ValueError if it is none, or has no end.

    Takes time and memory in proportion to the size of `data`.
    """
    texts: dict[str, None] = {}
    fields: dict[str, Scalar] = {}
    before: Scalar | None = None
    for value in _values(data):
        if isinstance(value, str):
            texts[value] = None
        if isinstance(before, str) and value is not None:
            fields.setdefault(before, value)
            before = None  # what comes next is a name again
        else:
            before = value
    return Scanned(tuple(texts), fields)


class _Memo:
    """What the machine would remember under each number, of texts and numbers."""

    def __init__(self) -> None:
        self._values: dict[object, Scalar | None] = {}

    def follow(self, name: str, argument: object, last: Scalar | None) -> None:
        """Takes note of what an instruction remembers of the last thing put down."""
        if name == "MEMOIZE":
            self._values[len(self._values)] = last
        elif name in _PUTS:
            self._values[argument] = last

    def get(self, argument: object) -> Scalar | None:
        return self._values.get(argument)


def _values(data: bytes) -> Iterator[Scalar | None]:
    """What each instruction puts down: a text, a number, or None for anything else."""
    memo = _Memo()
    last: Scalar | None = None
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count == _MAX_INSTRUCTIONS:
            raise ValueError(f"it has more than {_MAX_INSTRUCTIONS} instructions")
        name = opcode.name
        if name in _BOOKKEEPING:
            memo.follow(name, argument, last)
            continue
        last = memo.get(argument) if name in _GETS else _scalar(name, argument)
        yield last


def _scalar(name: str, argument: object) -> Scalar | None:
    if name in _TEXTS and isinstance(argument, str):
        # Lone surrogates are valid in a pickle and in no output.
        return argument.encode("utf-8", "replace").decode("utf-8")
    return argument if name in _NUMBERS and isinstance(argument, int) else None
