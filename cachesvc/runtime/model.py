"""The model digest: what a model is, without the values of its weights.

Each part is a named component, so that a miss can name the one that changed.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from cachesvc.core.address import name_from
from cachesvc.core.components import Components
from cachesvc.core.digest import Json, canonical_json
from cachesvc.runtime.backend import compile_function, compile_options, original
from cachesvc.runtime.code import class_name
from cachesvc.runtime.constants import shortened
from cachesvc.runtime.reach import Reach
from cachesvc.runtime.structure import Structure, follow_global_hooks

_Parts = Iterator[tuple[str, Json]]


def model_name(model: Any) -> str:
    """The name a bundle gets without a label: the model's class, or the function's name."""
    inner = original(model)
    named = type(inner) if isinstance(inner, torch.nn.Module) else inner
    return name_from(getattr(named, "__name__", type(inner).__name__))


def model_components(model: Any, *, salt: str = "") -> Components:
    """The components of the model digest.

    Equal across processes, hosts, checkouts, devices, hash seeds and weight values; different
    when a class, its code or any code that it calls outside torch, a global or closure value, a
    shape, a dtype, a plain attribute, a mode, a hook or a compile option changes. `salt` is the
    user's own component. Never raises for what attributes hold.
    """
    return read_model(model, salt=salt).components


@dataclass(frozen=True)
class Reading:
    """The components of a model's digest, and all that was looked at on the way to them."""

    components: Components
    reach: Reach
    structures: tuple[Structure, ...]


def read_model(model: Any, *, salt: str = "") -> Reading:
    """See `model_components`."""
    reach = Reach()
    structures: list[Structure] = []
    with no_collection():
        parts = _parts(model, original(model), salt, reach, structures)
        return Reading(_components(parts), reach, tuple(structures))


def read_functions(functions: Iterable[Any]) -> Reading:
    """The same of functions: their code, and all that it reaches."""
    reach = Reach()
    with no_collection():
        for function in functions:
            reach.follow(function)
        reach.run()
        return Reading(_components(reach.parts()), reach, ())


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: it would look at all objects of large libraries, which
    takes as long as the digest itself, for some thousand short-lived ones."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _parts(model: Any, inner: Any, salt: str, reach: Reach, structures: list[Structure]) -> _Parts:
    described: dict[str, Json] = {}
    if isinstance(inner, torch.nn.Module):
        described["class"] = class_name(type(inner))
        structures.append(Structure(inner, "", reach))
    else:
        described["function"] = getattr(inner, "__qualname__", class_name(type(inner)))
        reach.follow(inner)
        reach.later(lambda: described.update(code=reach.describer.describe(inner, "self")))
    follow_global_hooks(reach)
    reach.follow(compile_function(model))
    reach.run()
    while reach.modules:
        module, place = reach.modules.pop(0)
        structures.append(Structure(original(module), place, reach))
        reach.run()
    yield "compile", dict(compile_options(model))
    if salt:
        yield "salt", salt
    yield from described.items()
    yield from reach.parts()
    for structure in structures:
        yield from structure.parts()


def _components(parts: Iterable[tuple[str, Json]]) -> Components:
    texts: dict[str, str] = {}
    for name, value in parts:
        text = _text(value)
        texts[name] = f"{texts[name]} {text}" if name in texts else text
    return Components.of(texts)


def _text(value: Json) -> str:
    """Short values are kept readable, long ones by their digest."""
    short = shortened(value)
    plain = isinstance(short, str) and not _is_json(short)
    return short if isinstance(short, str) and plain else canonical_json(short).decode()


def _is_json(text: str) -> bool:
    """Whether a text would be taken for another value, as `0.1` or `null`."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
