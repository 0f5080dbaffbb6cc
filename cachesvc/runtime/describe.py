"""Values of a model's attributes as JSON that is equal in every process.

What a graph can bake in is described; what is volatile (addresses, salted hashes, paths) is not.
"""

from __future__ import annotations

import enum
import functools
import math
import re
import sys
import types
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from numbers import Number
from typing import Any

import torch

from cachesvc.core.digest import Json, canonical_json, digest_bytes, digest_json
from cachesvc.runtime.code import UNREADABLE, class_name, code_digest, module_name

_MAX_DEPTH = 6
_MAX_ITEMS = 2000
_MAX_VALUES = 500_000
_MAX_TEXT = 400
# Names whose values differ between equal models: salted or address-based hashes, places on disk,
# the devices that a wrapper for several of them was given.
_VOLATILE = re.compile(
    r"(_hash|name_or_path|_path|_dir|transformers_version)$|^(device_ids|output_device)$"
)
_CONSTANTS = (
    *(Number, str, bytes, enum.Enum, range),
    *(torch.dtype, torch.layout, torch.memory_format),
)
# Where a property, a class method or a cached property keeps its functions.
_PARTS = ("__func__", "fget", "fset", "func")
# Classes of the standard library that hold plain data; all others hold locks, places, identities.
_PLAIN = (types.SimpleNamespace, Namespace)


def describe(value: object) -> Json:
    """A JSON value that is equal for equal values in every process, host and checkout.

    Tensors are described without their values, functions by name and code, objects by class and
    attributes, to a depth of six. Never raises: what cannot be read is described by its class.
    """
    return Describer().describe(value)


class Describer:
    """Describes the values of one model; one that is met again costs nothing more.

    Bounded: of a large collection the first items count, and of a value that leads to half a
    million others (a cache, a trainer) only the class of the rest.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[object, Json]] = {}
        self._left = _MAX_VALUES

    def describe(self, value: object, depth: int = _MAX_DEPTH) -> Json:
        """See `describe`."""
        self._left -= 1
        try:
            if is_constant(value):
                return _constant(value)
            key = (id(value), depth)
            if key not in self._known:
                # The value is kept, so that its id stands for nothing else meanwhile.
                self._known[key] = (value, shortened(self._compound(value, depth)))
            return self._known[key][1]
        except Exception:  # a value may run any code of its own when it is looked at
            return class_name(type(value))

    def attributes(
        self, value: object, depth: int = _MAX_DEPTH, *, but: Collection[str] = ()
    ) -> Iterator[tuple[str, Json]]:
        """The plain attributes of an object, by name; without the volatile ones and `but`."""
        for name, item in sorted(_fields(value).items()):
            if name not in but and not _VOLATILE.search(name):
                yield _text(name), self.describe(item, depth)

    def _compound(self, value: Any, depth: int) -> Json:
        if isinstance(value, torch.Tensor):
            return describe_tensor(value)
        if isinstance(value, torch.nn.Module | type) or depth == 0 or self._left < 0:
            return class_name(value if isinstance(value, type) else type(value))
        if isinstance(value, Mapping):
            return list(self._items(value, depth - 1))
        if isinstance(value, set | frozenset):
            return self._set(value, depth - 1)
        if isinstance(value, slice):
            return self._list((value.start, value.stop, value.step), depth - 1)
        if isinstance(value, list | tuple):
            return self._list(value, depth - 1)
        if isinstance(value, functools.partial):
            return self._list((value.func, value.args, value.keywords), depth - 1)
        if callable(value) and hasattr(value, "__qualname__"):
            return describe_function(value)
        kind = type(value)
        described = [] if _is_opaque(kind) else self.attributes(value, depth - 1)
        return {"class": class_name(kind), "fields": dict(described)}

    def _list(self, values: Iterable[object], depth: int) -> list[Json]:
        return [self.describe(item, depth) for item in islice(values, _MAX_ITEMS)]

    def _set(self, values: Collection[object], depth: int) -> Json:
        if len(values) > _MAX_ITEMS:  # the first ones would be others in each process
            return f"{len(values)} items"
        return sorted((self.describe(item, depth) for item in values), key=canonical_json)

    def _items(self, value: Mapping[Any, object], depth: int) -> Iterator[Json]:
        for key, item in islice(value.items(), _MAX_ITEMS):
            if not (isinstance(key, str) and _VOLATILE.search(key)):
                yield [self.describe(key, depth), self.describe(item, depth)]


def describe_tensor(tensor: torch.Tensor) -> dict[str, Json]:
    """Shape, dtype, layout and class of a tensor; neither its device nor its values."""
    facts: dict[str, Json] = {
        "class": class_name(type(tensor)),
        "dtype": str(tensor.dtype),
        "requires_grad": tensor.requires_grad,
    }
    with suppress(Exception):  # a lazy parameter and a nested tensor have no shape
        facts["shape"] = list(tensor.shape)
        strided = tensor.layout is torch.strided
        facts["stride"] = list(tensor.stride()) if strided else str(tensor.layout)
    return facts


def describe_function(function: Any) -> Json:
    """A function's name and code, and the constants among its defaults and closure values.

    Other closure values are left out: they are often caches or lists that grow while it runs.
    """
    inner = getattr(function, "_torchdynamo_orig_callable", function)
    inner = getattr(inner, "__func__", inner)
    text = f"{module_name(inner.__module__)}.{inner.__qualname__} {code_digest(inner)}"
    values = dict(_bound(inner))
    return [text, values] if values else text


def _bound(function: Any) -> Iterator[tuple[str, Json]]:
    defaults = enumerate(getattr(function, "__defaults__", None) or ())
    by_keyword = getattr(function, "__kwdefaults__", None) or {}
    for name, value in (*defaults, *by_keyword.items(), *closure(function)):
        if is_constant(value):
            yield str(name), _constant(value)


def closure(function: Any) -> Iterator[tuple[str, Any]]:
    """The values that a function has from where it was defined, by name."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        with suppress(ValueError):  # a cell that is not filled yet
            yield name, cell.cell_contents


def describe_class(kind: type) -> Json:
    """The code of a class's own methods and the constants in its body."""
    return dict(sorted(_members(kind)))


def _members(kind: type) -> Iterator[tuple[str, Json]]:
    for name, value in tuple(vars(kind).items()):
        with suppress(Exception):  # see `Describer.describe`
            if not is_constant(value):
                parts = (value, *(getattr(value, part, None) for part in _PARTS))
                codes = [code for part in parts if (code := code_digest(part)) != UNREADABLE]
                if codes:
                    yield name, list(codes)
            elif not name.startswith("__"):
                yield name, _constant(value)


def is_constant(value: object) -> bool:
    """Whether a value is plain and cannot change in place: a number, a text, a tuple of such."""
    if type(value) is tuple:
        return len(value) <= _MAX_ITEMS and all(map(is_constant, value))
    return value is None or isinstance(value, _CONSTANTS)


def _constant(value: Any) -> Json:
    if isinstance(value, enum.Enum):
        return f"{class_name(type(value))}.{value.name or value.value}"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return f"bytes {digest_bytes(value)}"
    if isinstance(value, tuple):
        return [_constant(item) for item in value]
    if type(value) is int:
        return value if abs(value) < 1 << 63 else hex(value)
    if type(value) is float and math.isfinite(value):
        return value
    return f"{class_name(type(value))} {value!r}"


def shortened(value: Json) -> Json:
    """The value itself while it is short enough to be read, else its digest."""
    short = len(canonical_json(value)) <= _MAX_TEXT
    return value if short else f"sha256:{digest_json(value)}"


def _is_opaque(kind: type) -> bool:
    module = str(kind.__module__).partition(".")[0]
    return module in sys.stdlib_module_names and not issubclass(kind, _PLAIN)


def _fields(value: object) -> dict[str, object]:
    """What an object holds in its slots and its dictionary; none of its own code runs."""
    fields: dict[str, object] = {}
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, types.MemberDescriptorType):
                with suppress(AttributeError):  # a slot that was never set
                    fields[name] = slot.__get__(value)
    with suppress(AttributeError):
        fields.update(object.__getattribute__(value, "__dict__"))
    return {name: item for name, item in fields.items() if isinstance(name, str)}


def _text(text: str) -> str:
    """Text that can be encoded, whatever it holds; a long one by its digest."""
    plain = text.encode(errors="backslashreplace")
    return plain.decode() if len(plain) <= _MAX_TEXT else f"sha256:{digest_bytes(plain)}"
