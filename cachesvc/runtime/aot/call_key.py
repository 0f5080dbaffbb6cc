"""The key of a call: all that a compiled function may have been made for.

Two calls with equal keys give a graph inputs of the same kind: the same names, positional or
keyword, the same structure, the same Python values, tensors with the same metadata, the same
tensors shared among them. Values of tensors are no part of it.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MemberDescriptorType, ModuleType
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.runtime.code import class_name
from cachesvc.runtime.functions import own_fields

Key = tuple[Any, ...]

MAX_LEAVES = 4096
_DEPTH = 12
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_CONSTANTS = (bool, int, str, bytes, type(None))
_OBJECTS = "object"
# Modules whose objects are about a process, or whose state lies where nobody sees it.
_OPAQUE = ("torch", "builtins", "threading", "_thread", "weakref", "io", "_io", "numpy")


class NoKey(Exception):
    """A call has an argument that no key describes whole."""


def call_key(args: Sequence[Any], kwargs: Mapping[str, Any], own: Collection[int] = ()) -> Key:
    """The key; `own` are the ids of the model's tensors, which no argument may be.

    Raises NoKey for those, and for arguments of kinds that cannot be described.
    """
    walk = _Walk()
    positional = tuple([walk.key(value, _DEPTH) for value in args])
    named = tuple([(name, walk.key(value, _DEPTH)) for name, value in kwargs.items()])
    tensors = walk.tensors
    if own and any(id(tensor) in own for tensor in tensors):
        raise NoKey("an argument is a tensor of the model")
    if len(tensors) > 1:
        return (positional, named, _shared(tensors))
    return (positional, named, ())


def tensors_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """All tensors of a call, in the order in which its key holds them."""
    walk = _Walk()
    for value in (*args, *kwargs.values()):
        walk.key(value, _DEPTH)
    return walk.tensors


def tensor_key(tensor: torch.Tensor) -> Key:
    """Metadata of one tensor."""
    return (
        "tensor",
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.device,
        tensor.requires_grad,
        dispatch_keys(tensor),
    )


def dispatch_keys(tensor: torch.Tensor) -> int:
    """torch's dispatch keys as one number: tells conjugates, negatives, tensors of inference mode,
    sparse ones and those inside a functorch transform apart. 0 where this torch does not say."""
    read = getattr(torch._C, "_dispatch_keys", None)
    return 0 if read is None else int(read(tensor).raw_repr())


class _Walk:
    """One walk over the arguments of a call.

    `kept` holds the objects met, so that each counts once and none makes the walk endless.
    """

    __slots__ = ("kept", "left", "seen", "tensors")

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.kept: list[object] = []
        self.seen: dict[int, int] = {}
        self.left = MAX_LEAVES

    def key(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _TENSORS:
            self.tensors.append(value)
            return tensor_key(value) if not value.__dict__ else self._with_fields(value, depth)
        if kind in _CONSTANTS:
            return (kind.__name__, value)
        self.left -= 1
        if self.left < 0 or depth < 0:
            raise NoKey("a call has more arguments than a key holds")
        if kind is float:
            return ("float", value.hex())
        if kind is tuple:
            return ("tuple", tuple([self.key(item, depth - 1) for item in value]))
        if kind is not list and kind is not dict:
            return self._other(value, kind, depth)
        if (known := self.seen.get(id(value))) is not None:
            return ("again", known)
        self._meet(value)
        if kind is list:
            return ("list", tuple([self.key(item, depth - 1) for item in value]))
        return ("dict", self._pairs(value, depth))

    def _meet(self, value: object) -> None:
        self.seen[id(value)] = len(self.kept)
        self.kept.append(value)

    def _with_fields(self, value: torch.Tensor, depth: int) -> Key:
        """A tensor that somebody has given attributes of its own."""
        fields = [(name, self.key(item, depth - 1)) for name, item in value.__dict__.items()]
        return (*tensor_key(value), tuple(fields))

    def _pairs(self, value: Mapping[Any, Any], depth: int) -> Key:
        return tuple([(self.key(k, 1), self.key(v, depth - 1)) for k, v in value.items()])

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        if kind is torch.Size:
            return ("Size", tuple(value))
        if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
            return (kind.__name__, str(value))
        if isinstance(value, enum.Enum):
            return ("enum", _name(kind), value.name or str(value._value_))
        return self._object(value, kind, depth)

    def _object(self, value: Any, kind: type, depth: int) -> Any:
        """An object of a Python class, by its class and all that it holds."""
        known = self.seen.get(id(value))
        if known is not None:
            return ("again", known)
        if str(kind.__module__).partition(".")[0] in _OPAQUE or not _is_plain(kind):
            raise NoKey(f"an argument is a {class_name(kind)}, which no key describes")
        name = _name(kind)
        self._meet(value)
        inner: Any = ()
        if isinstance(value, dict):
            inner = self._pairs(value, depth)
        elif isinstance(value, list | tuple):
            inner = tuple([self.key(item, depth - 1) for item in value])
        fields = [(k, self.key(v, depth - 1)) for k, v in _fields(value, kind) if v is not value]
        return (_OBJECTS, name, inner, tuple(fields))


def _is_plain(kind: type) -> bool:
    """Whether all that an instance holds lies in its dictionary, its slots, or the container that
    it is: what comes with neither was not written in Python."""
    base: type = kind
    while base.__flags__ & (1 << 9):  # a class made by a `class` statement
        base = base.__base__ or object
    return base in (object, dict, list, tuple) or base.__name__ == "OrderedDict"


def _fields(value: Any, kind: type) -> list[tuple[str, Any]]:
    fields = list(own_fields(value).items())
    for base in kind.__mro__:
        for name, slot in vars(base).items():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # a slot that was never set
                    fields.append((name, slot.__get__(value)))
    return fields


def _name(kind: type) -> str:
    """Where a class is found: of those that are made in a function, many can have one name."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = found.__dict__.get(part) if isinstance(found, type | ModuleType) else None
    if found is not kind:
        raise NoKey(f"an argument is a {class_name(kind)}, which is not what has that name")
    return f"{kind.__module__}.{kind.__qualname__}"


def _shared(tensors: Sequence[torch.Tensor]) -> Key:
    """Which of the tensors are the same, or share memory: empty where none do."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    if len(set(storages)) == len(storages):
        return ()
    first: dict[Any, int] = {}
    pattern = []
    for number, (tensor, storage) in enumerate(zip(tensors, storages, strict=True)):
        same = first.setdefault(("is", id(tensor)), number)
        shares = first.setdefault(("storage", storage), number)
        pattern.append((same, shares, tensor.storage_offset() if shares != number else 0))
    return tuple(pattern)


def to_json(key: Any) -> Json:
    """A key as a JSON value, for another process."""
    if isinstance(key, tuple):
        return [to_json(item) for item in key]
    if isinstance(key, torch.dtype | torch.device):
        return {type(key).__name__: str(key).removeprefix("torch.")}
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    return key  # type: ignore[no-any-return]


def from_json(value: Json) -> Any:
    """The key that `to_json` was given. Raises ValueError for what it never wrote."""
    if isinstance(value, list):
        return tuple(from_json(item) for item in value)
    if isinstance(value, dict):
        if len(value) != 1:
            raise ValueError(f"{value!r} is no part of a key")
        ((kind, text),) = value.items()
        if kind == "bytes":
            return bytes.fromhex(str(text))
        if kind == "device":
            return torch.device(str(text))
        found = getattr(torch, str(text), None)
        if kind != "dtype" or not isinstance(found, torch.dtype):
            raise ValueError(f"{value!r} is no part of a key")
        return found
    return value
