"""Values of a model's attributes as JSON that is equal in every process.

What a graph can bake in is described; what is volatile (addresses, salted hashes, paths) is not.
"""

from __future__ import annotations

import functools
import types
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import torch

from cachesvc.core.digest import Json, canonical_json
from cachesvc.runtime.code import class_name, code_digest, module_name
from cachesvc.runtime.constants import (
    MAX_ITEMS,
    array,
    constant,
    is_array,
    is_constant,
    is_volatile,
    plain_text,
    shortened,
)
from cachesvc.runtime.functions import (
    closure,
    defaults,
    is_followed,
    is_foreign_class,
    is_found_by_name,
    layers,
    own_fields,
)
from cachesvc.runtime.state import State
from cachesvc.runtime.tensors import describe_tensor

_MAX_DEPTH = 6
_MAX_VALUES = 500_000
_MAX_FIELDS = 600
# Classes that hold plain data, though they are the standard library's; all others of it hold
# locks, places, identities.
_PLAIN = (types.SimpleNamespace, Namespace)
_GROWING = (defaultdict, Counter)
# Classes of torch that hold what is about a process: ranks, groups, counters.
_OPAQUE = ("torch._C", "torch.distributed", "torch.utils.hooks", "torch._dynamo", "torch.cuda")


def describe(value: object) -> Json:
    """A JSON value that is equal for equal values in every process, host and checkout.

    Tensors are described without their values, functions by name and code, objects by class and
    attributes, to a depth of six. Never raises: what cannot be read is described by its class.
    """
    return Describer().describe(value)


class Describer:
    """Describes the values of one model; one that is met again costs nothing more.

    `found` are the functions, classes and modules that were met, each with its place, for others
    to follow. With a place, an object is described by `parts` of their own, one for each field,
    named by the place where it was met first; every other place refers to that one.

    Bounded: of a large collection the first items count, and of a value that leads to half a
    million others (a cache, a trainer) only the class of the rest.
    """

    def __init__(self, state: State | None = None) -> None:
        self.parts: dict[str, Json] = {}
        self.found: list[tuple[object, str]] = []
        self.places: dict[int, str] = {}
        self._state = state or State()
        self._kept: list[object] = []
        self._known: dict[tuple[int, int], Json] = {}
        self._codes: dict[int, str] = {}
        self._slots: dict[type, tuple[tuple[str, types.MemberDescriptorType], ...]] = {}
        self._left = _MAX_VALUES

    def describe(self, value: object, place: str = "", depth: int = _MAX_DEPTH) -> Json:
        """See `describe`; `place` is where the value was met."""
        self._left -= 1
        try:
            if is_constant(value):
                return constant(value)
            key = (id(value), depth)
            if key not in self._known:
                # The value is kept, so that its id stands for nothing else meanwhile.
                self._kept.append(value)
                self._known[key] = class_name(type(value))  # for what holds itself
                self._known[key] = shortened(self._compound(value, place, depth))
            return self._known[key]
        except Exception:  # a value may run any code of its own when it is looked at
            return class_name(type(value))

    def attributes(
        self, value: object, place: str = "", depth: int = _MAX_DEPTH, *, but: Collection[str] = ()
    ) -> Iterator[tuple[str, Json]]:
        """The plain attributes of an object, by name; without the volatile ones and `but`."""
        kind = type(value)
        for name, item in sorted(self._fields(value).items()):
            if name in but or is_volatile(name, item) or self._state.has_field(kind, name, item):
                continue
            if not _is_computed(kind, name):
                yield plain_text(name), self.describe(item, _inside(place, name), depth)

    @property
    def kept(self) -> list[object]:
        """All values that were described, but for plain ones."""
        return self._kept

    def function(self, value: Any) -> Json:
        """The code of all that runs when a function is called, and the values bound to it."""
        bound: dict[str, Json] = {}
        own = layers(value)
        for layer in own:
            self._kept.append(layer)
            place = f"{module_name(layer.__module__)}.{layer.__qualname__}"
            for name, item in (*defaults(layer), *closure(layer)):
                wraps = any(item is other for other in (value, *own))
                if not wraps and not self._state.has_bound(layer, name, item):
                    described = self.describe(item, f"closure {place}.{name}")
                    bound[name] = [bound[name], described] if name in bound else described
        text = self.codes(value)
        return [text, bound] if bound else text

    def codes(self, value: object) -> str:
        """The code of all that runs when a function is called, without the values bound to it."""
        return "-".join(map(self._code, layers(value)))

    def _code(self, function: types.FunctionType) -> str:
        key = id(function.__code__)
        if key not in self._codes:
            self._kept.append(function.__code__)
            self._codes[key] = code_digest(function.__code__)
        return self._codes[key]

    def _compound(self, value: Any, place: str, depth: int) -> Json:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            self._meet(kind, place)
            return describe_tensor(value, lambda item: self.describe(item, "", depth - 1))
        if isinstance(value, torch.nn.Module):
            return self._module(value, place)
        if isinstance(value, type):
            self._meet(value, place)
            return f"class {class_name(value)}"
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if is_array(value):
            return array(value)
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return ["partial", *(self.describe(part, place, depth) for part in parts)]
        if layers(value) or isinstance(value, types.BuiltinFunctionType):
            return self._callable(value, place)
        if depth == 0 or self._left < 0:
            return class_name(kind)
        items = self._items(value, place, depth - 1)
        if items is None:
            return self._object(value, place, depth)
        plain = kind in {dict, list, tuple, set, frozenset, torch.Size, types.MappingProxyType}
        if plain or is_foreign_class(kind):
            return items
        self._meet(kind, place)
        return {"class": class_name(kind), "items": items, "fields": self._inline(value, depth)}

    def _module(self, module: torch.nn.Module, place: str) -> Json:
        if id(module) not in self.places and place:
            self.places[id(module)] = place
            self._kept.append(module)
            self._meet(module, place)
        kind = class_name(type(module))
        return {"at": self.places[id(module)]} if id(module) in self.places else kind

    def _callable(self, value: Any, place: str) -> Json:
        own = layers(value)
        called = own[0] if own else value
        name = getattr(called, "__qualname__", class_name(type(value)))
        full = f"{module_name(getattr(called, '__module__', None) or '-')}.{name}"
        owner = getattr(value, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            self._meet(value, place)
            return {"method": full, "of": self.describe(owner, place)}
        if not is_followed(value):
            return full
        self._meet(value, place)
        if is_found_by_name(value):
            return f"function {full}"
        described: dict[str, Json] = {"function": full, "code": self.function(value)}
        configs = own_fields(value).get("configs")  # what Triton tries for a kernel
        return {**described, "configs": self.describe(configs)} if configs else described

    def _items(self, value: Any, place: str, depth: int) -> Json:
        if isinstance(value, dict | types.MappingProxyType):
            if isinstance(value, _GROWING):
                return class_name(type(value))
            pairs = dict.items(value) if isinstance(value, dict) else value.items()
            described = list(self._pairs(pairs, place, depth))
            # Registries are filled in the order of imports.
            return sorted(described, key=canonical_json) if " " in place else described
        if isinstance(value, set | frozenset):
            return self._set(value, depth)
        if isinstance(value, slice):
            return self._list((value.start, value.stop, value.step), place, depth)
        if isinstance(value, list | tuple):
            plain: Iterable[object] = (
                list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
            )
            return self._list(plain, place, depth)
        return None

    def _pairs(
        self, pairs: Iterable[tuple[object, object]], place: str, depth: int
    ) -> Iterator[Json]:
        for key, item in islice(pairs, MAX_ITEMS):
            if not (isinstance(key, str) and is_volatile(key, item)):
                yield [
                    self.describe(key, "", depth),
                    self.describe(item, _inside(place, key), depth),
                ]

    def _list(self, values: Iterable[object], place: str, depth: int) -> list[Json]:
        numbered = enumerate(islice(values, MAX_ITEMS))
        return [self.describe(item, _inside(place, number), depth) for number, item in numbered]

    def _set(self, values: Collection[object], depth: int) -> Json:
        if len(values) > MAX_ITEMS:  # the first ones would be others in each process
            return f"{len(values)} items"
        return sorted((self.describe(item, "", depth) for item in values), key=canonical_json)

    def _object(self, value: object, place: str, depth: int) -> Json:
        kind = type(value)
        if _is_opaque(kind) or kind is torch.device:
            return class_name(kind)
        self._meet(kind, place)
        if id(value) in self.places:
            return {"at": self.places[id(value)]}
        if not place or len(self.parts) > _MAX_FIELDS:
            return {"class": class_name(kind), "fields": self._inline(value, depth)}
        self.places[id(value)] = place
        self.parts[f"{place}.__class__"] = class_name(kind)
        for name, described in self.attributes(value, place, depth - 1):
            self.parts[f"{place}.{name}"] = described
        return {"at": place}

    def _inline(self, value: object, depth: int) -> dict[str, Json]:
        return dict(self.attributes(value, "", depth - 1))

    def _fields(self, value: object) -> dict[str, object]:
        """What an object holds in its slots and its dictionary; none of its own code runs."""
        kind = type(value)
        if kind not in self._slots:
            self._slots[kind] = _slots(kind)
        fields: dict[str, object] = {}
        for name, slot in self._slots[kind]:
            with suppress(AttributeError):  # a slot that was never set
                fields[name] = slot.__get__(value)
        fields.update(own_fields(value))
        return {name: item for name, item in fields.items() if isinstance(name, str)}

    def _meet(self, value: object, place: str) -> None:
        self.found.append((value, place))


def _inside(place: str, name: object) -> str:
    """The place of a part of what lies at a place; none of a part without a plain name."""
    named = isinstance(name, str | int) and len(str(name)) < 64
    if place == ".":  # the model itself
        return str(name)
    return f"{place}.{name}" if place and named else ""


def _is_opaque(kind: type) -> bool:
    module = str(kind.__module__)
    if module.startswith(_OPAQUE):
        return True
    return (
        is_foreign_class(kind)
        and not module.startswith(("torch", "triton."))
        and not issubclass(kind, _PLAIN)
    )


def _is_computed(kind: type, name: str) -> bool:
    """Whether a name is a property, whose value an object keeps once somebody has asked for it."""
    for base in kind.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            slot = isinstance(found, types.MemberDescriptorType | types.FunctionType)
            return hasattr(type(found), "__get__") and not slot
    return False


def _slots(kind: type) -> tuple[tuple[str, types.MemberDescriptorType], ...]:
    return tuple(
        (name, slot)
        for base in kind.__mro__
        for name, slot in vars(base).items()
        if isinstance(slot, types.MemberDescriptorType) and not name.startswith("__")
    )
