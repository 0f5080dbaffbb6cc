"""The model digest: what a model is, without the values of its weights.

Each part is a named component, so that a miss can name the one that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from cachesvc.core.address import name_from
from cachesvc.core.components import Components
from cachesvc.core.digest import Json, canonical_json
from cachesvc.runtime.backend import compile_options, is_compiled_itself, original, own_forward
from cachesvc.runtime.code import class_name
from cachesvc.runtime.describe import (
    Describer,
    closure,
    describe_class,
    describe_tensor,
    shortened,
)

# What every module has of its own; all of it is described elsewhere or holds no state of a model.
_OWN = frozenset(
    {*torch.nn.Module.__annotations__, *torch.nn.Module().__dict__, "_is_torch_compile"}
)
_Parts = Iterator[tuple[str, Json]]


def model_name(model: Any) -> str:
    """The name a bundle gets without a label: the model's class, or the function's name."""
    inner = original(model)
    named = type(inner) if isinstance(inner, torch.nn.Module) else inner
    return name_from(getattr(named, "__name__", type(inner).__name__))


def model_components(model: Any, *, salt: str = "") -> Components:
    """The components of the model digest.

    Equal across processes, hosts, checkouts, devices, hash seeds and weight values; different
    when a class, its code, a shape, a dtype, a plain attribute, a mode, a hook or a compile
    option changes. `salt` is the user's own component. Never raises for what attributes hold.
    """
    inner = original(model)
    parts: dict[str, Json] = {"compile": dict(compile_options(model))}
    if salt:
        parts["salt"] = salt
    is_module = isinstance(inner, torch.nn.Module)
    parts.update(_module_parts(inner) if is_module else _function_parts(inner))
    return _components(parts)


def _components(parts: Mapping[str, Json]) -> Components:
    return Components.of({name: _text(value) for name, value in parts.items()})


def _text(value: Json) -> str:
    """Short values are kept readable, long ones by their digest."""
    short = shortened(value)
    return short if isinstance(short, str) else canonical_json(short).decode()


def _function_parts(function: Any) -> _Parts:
    """A function with the modules that it is bound to or has taken from where it was defined."""
    describer = Describer()
    yield "function", getattr(function, "__qualname__", class_name(type(function)))
    yield "code", describer.describe(function)
    if not hasattr(function, "__qualname__"):  # an object that can be called
        yield "class", describe_class(type(function))
    for name, value in (("self", getattr(function, "__self__", None)), *closure(function)):
        inner = original(value)
        if isinstance(inner, torch.nn.Module):
            yield f"module {name}", _components(dict(_module_parts(inner))).digest


def _module_parts(model: torch.nn.Module) -> _Parts:
    modules = _modules(model)
    first = {id(original(module)): path for path, module in modules.items()}
    inner = {path: original(module) for path, module in modules.items()}
    yield "class", class_name(type(model))
    yield "modules", [_structure(path, module, first) for path, module in inner.items()]
    yield "training", [path for path, module in inner.items() if module.training]
    yield "parameters", list(_tensors((p, m._parameters) for p, m in inner.items()))
    yield "buffers", list(_tensors((p, m._buffers) for p, m in inner.items()))
    yield from _classes(inner.values())
    describer = Describer()
    for path, module in modules.items():
        yield from _own_parts(path or ".", module, describer, outermost=module is model)


def _modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Every module once, by its first path; a compiled one stands for what was compiled."""
    found: dict[str, torch.nn.Module] = {}
    seen: set[int] = set()
    waiting = [("", model)]
    while waiting:
        path, module = waiting.pop()
        inner = original(module)
        if id(inner) not in seen:
            seen.add(id(inner))
            found[path] = module
            children = [(f"{path}.{name}".lstrip("."), c) for name, c in _children(inner)]
            waiting += reversed(children)
    return found


def _children(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    return ((name, child) for name, child in module._modules.items() if child is not None)


def _structure(path: str, module: torch.nn.Module, first: Mapping[int, str]) -> Json:
    """A module's class, and the places of those of its children that came before under others."""
    places = {name: first[id(original(child))] for name, child in _children(module)}
    shared: Json = {n: at for n, at in places.items() if at != f"{path}.{n}".lstrip(".")}
    return [path, class_name(type(module)), *([shared] if shared else [])]


def _tensors(
    groups: Iterable[tuple[str, Mapping[str, torch.Tensor | None]]],
) -> Iterator[Json]:
    """Each tensor's description; one that is there before (tied) names its first place."""
    first: dict[int, str] = {}
    for path, tensors in groups:
        for name, tensor in tensors.items():
            if tensor is not None:
                place = f"{path}.{name}".lstrip(".")
                tied = first.setdefault(id(tensor), place)
                yield [place, describe_tensor(tensor), None if tied == place else tied]


def _classes(modules: Iterable[torch.nn.Module]) -> _Parts:
    """The code of the classes that are not torch's own; a function can make several of one name."""
    by_name: dict[str, list[Json]] = {}
    for kind in {kind for module in modules for kind in type(module).__mro__}:
        if not kind.__module__.startswith(("torch.", "builtins")):
            by_name.setdefault(class_name(kind), []).append(describe_class(kind))
    for name, codes in by_name.items():
        yield f"code {name}", sorted(codes, key=canonical_json)


def _own_parts(path: str, module: Any, describer: Describer, *, outermost: bool) -> _Parts:
    inner = original(module)
    plain = dict(describer.attributes(inner, but=_OWN))
    if plain:
        yield f"attributes {path}", plain
    forward = own_forward(inner)
    if forward is not None:
        yield f"forward {path}", describer.describe(forward)
    hooks = {n: h for n, h in inner.__dict__.items() if n.endswith("_hooks") and h}
    if hooks:
        yield (
            f"hooks {path}",
            {n: [describer.describe(h) for h in hooks[n].values()] for n in hooks},
        )
    if not outermost and is_compiled_itself(module):
        yield f"compile {path}", dict(compile_options(module))
