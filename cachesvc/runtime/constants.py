"""Plain values as JSON: numbers, texts, dtypes, patterns, arrays; and which names are volatile."""

from __future__ import annotations

import decimal
import enum
import fractions
import math
import os
import re
import sys
from typing import Any

import torch

from cachesvc.core.digest import Json, canonical_json, digest_bytes, digest_json
from cachesvc.runtime.code import class_name

MAX_ITEMS = 2000
_MAX_TEXT = 400
_MAX_BYTES = 1 << 20
# Names whose values differ between equal models: salted or address-based hashes, places on disk,
# lazy caches, the devices that a model or its wrapper was given.
_VOLATILE = re.compile(r"(_hash|transformers_version)$|^_.*cached?$|^(device_ids|output_device)$")
_PATH = re.compile(r"(_path|_dir)$")
_DEVICE = re.compile(r"(^|_)device$")
_CONSTANTS = (
    *(int, float, complex, decimal.Decimal, fractions.Fraction),
    *(str, bytes, enum.Enum, range, re.Pattern, type(Ellipsis), type(NotImplemented)),
    *(torch.dtype, torch.layout, torch.memory_format),
)


def is_volatile(name: str, value: object) -> bool:
    """Whether a value differs between equal models, as its name says."""
    if _DEVICE.search(name):
        return isinstance(value, str | int | torch.device)
    if _PATH.search(name):  # no share of a network such as `drop_path`
        return value is None or isinstance(value, str | os.PathLike)
    return _VOLATILE.search(name) is not None


def has_volatile_name(name: str) -> bool:
    """Whether a value of this name may be volatile."""
    return any(pattern.search(name) for pattern in (_DEVICE, _PATH, _VOLATILE))


def is_constant(value: object) -> bool:
    """Whether a value is plain and cannot change in place: a number, a text, a tuple of such."""
    if type(value) is tuple:
        return len(value) <= MAX_ITEMS and all(map(is_constant, value))
    return value is None or issubclass(type(value), _CONSTANTS) or _is_numpy(value, "generic")


def constant(value: Any) -> Json:
    """The JSON of what `is_constant` accepts."""
    if isinstance(value, enum.Enum):
        name = value._name_ or repr(value._value_)
        return f"{class_name(type(value))}.{name} {_shown(value._value_)}"
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return plain_text(value)
    if isinstance(value, str):
        return [class_name(type(value)), plain_text(str.__str__(value))]
    if isinstance(value, bytes):
        return f"bytes {digest_bytes(value)}"
    if isinstance(value, tuple):
        return [constant(item) for item in value]
    if type(value) is int:
        return value if abs(value) < 1 << 63 else hex(value)
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, re.Pattern):
        return f"pattern {plain_text(repr(value.pattern))} {int(value.flags)}"
    if _is_numpy(value, "generic"):
        plain = value.item()  # its own text has changed between versions of numpy
        return f"{class_name(type(value))} {_shown(value if type(plain) is type(value) else plain)}"
    return f"{class_name(type(value))} {_shown(value)}"


def _shown(value: Any) -> str:
    """A number's own text, not what a subclass may say."""
    if isinstance(value, int):
        return f"0x{int.__format__(value, 'x')}"
    if isinstance(value, float):
        return float.__repr__(value)
    return plain_text(repr(value)) if is_constant(value) else class_name(type(value))


def _is_numpy(value: object, kind: str) -> bool:
    numpy = sys.modules.get("numpy")  # nobody has an array before it is imported
    return numpy is not None and issubclass(type(value), getattr(numpy, kind, ()))


def is_array(value: object) -> bool:
    """Whether a value is an array of numpy's."""
    return _is_numpy(value, "ndarray")


def array(value: Any) -> Json:
    """Shape, dtype and digest of an array: a graph has its values. A large one's first bytes."""
    text = f"array {value.dtype} {list(value.shape)}"
    if value.dtype.hasobject:
        return text
    count = max(1, _MAX_BYTES // max(1, value.dtype.itemsize))
    first = value if value.size <= count else value.ravel()[:count]
    return f"{text} {digest_bytes(first.tobytes())[:16]}"


def shortened(value: Json) -> Json:
    """The value itself while it is short enough to be read, else its digest."""
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is str and len(value) < _MAX_TEXT // 6:  # however it is spelled out
        return value
    short = len(canonical_json(value)) <= _MAX_TEXT
    return value if short else f"sha256:{digest_json(value)}"


def plain_text(text: str) -> str:
    """Text that can be encoded, whatever it holds; a long one by its digest."""
    plain = text.encode(errors="backslashreplace")
    return plain.decode() if len(plain) <= _MAX_TEXT else f"sha256:{digest_bytes(plain)}"
