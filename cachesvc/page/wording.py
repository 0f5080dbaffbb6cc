"""Figures as people read them: three digits that count, and a unit."""

from __future__ import annotations

import re

_MOMENT = re.compile(r"^([\d-]+)T([\d:]+)(?:\.\d+)?Z$")
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def seconds(value: float) -> str:
    """`38.2 s`, `3.84 s`, `12.4 ms`, `250 µs`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale * 0.9995 or value == 0:
            return f"{digits(value / scale)} {unit}"
    return f"{digits(value / 1e-6)} µs"


def size(number: float) -> str:
    """Bytes: `1.92 MB`, `512 B`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale * 0.9995:
            return f"{digits(number / scale)} {unit}"
    return f"{number:.0f} B"


def digits(value: float) -> str:
    """`1,234`, `123`, `12.3`, `1.23`, `0.012`."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.995 or value == 0 else f"{value:.2g}"


def counted(number: int, noun: str) -> str:
    """`1 sample`, `3 samples`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def moment(text: str) -> str:
    """`2026-03-01 12:00:00 UTC` of a time as JSON has it."""
    return _MOMENT.sub(r"\1 \2 UTC", text)


def plain(text: str) -> str:
    """The text with what no page may hold spelled out: control characters, halves of characters."""
    return _UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def shortened(text: str, length: int) -> str:
    """The text in one line, cut at a length for a label."""
    line = plain(text).replace("\n", " ").replace("\t", " ")
    return line if len(line) <= length else f"{line[: length - 1]}…"
