"""The model digest: what a model is, without the values of its weights.

Each part is a named component, so that a miss can name the one that changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from cachesvc.core.address import name_from
from cachesvc.core.components import Components
from cachesvc.core.digest import Json, canonical_json, digest_json
from cachesvc.runtime.backend import compile_options, original
from cachesvc.runtime.describe import attributes, class_name, describe_tensor
from cachesvc.runtime.sources import source_digest

_MAX_TEXT = 400
# Fields of every nn.Module that are described elsewhere or hold no state of the model.
_OWN = frozenset({"training", "call_super_init", "dump_patches", "forward"})


def model_name(model: Any) -> str:
    """The name a bundle gets without a label: the model's class, or the function's name."""
    inner = original(model)
    named = type(inner) if isinstance(inner, torch.nn.Module) else inner
    return name_from(getattr(named, "__name__", type(inner).__name__))


def model_components(model: Any, *, salt: str = "") -> Components:
    """The components of the model digest.

    Equal across processes, hosts, checkouts, devices, hash seeds and weight values; different
    when a class, its source, a shape, a dtype, a plain attribute, a mode, a hook or a compile
    option changes. `salt` is the user's own component.
    """
    inner = original(model)
    parts: dict[str, Json] = {"compile": dict(compile_options(model))}
    if salt:
        parts["salt"] = salt
    if isinstance(inner, torch.nn.Module):
        parts.update(_module_parts(inner))
    else:
        parts["function"] = getattr(inner, "__qualname__", class_name(type(inner)))
        parts["source"] = source_digest(inner)
    return Components.of({name: _text(value) for name, value in parts.items()})


def _text(value: Json) -> str:
    """Short values are kept readable, long ones by their digest."""
    text = value if isinstance(value, str) else canonical_json(value).decode()
    return text if len(text) <= _MAX_TEXT else f"sha256:{digest_json(value)}"


def _module_parts(model: torch.nn.Module) -> Iterator[tuple[str, Json]]:
    modules = dict(model.named_modules(remove_duplicate=False))
    yield "class", class_name(type(model))
    yield "modules", [[path, class_name(type(item))] for path, item in modules.items()]
    yield "training", sorted(path for path, item in modules.items() if item.training)
    yield "parameters", list(_tensors(model.named_parameters(remove_duplicate=False)))
    yield "buffers", list(_tensors(model.named_buffers(remove_duplicate=False)))
    yield from _sources(modules)
    for path, module in modules.items():
        yield from _attributes(path, module)


def _tensors(named: Iterator[tuple[str, torch.Tensor]]) -> Iterator[Json]:
    """Each tensor's description; one that is there before (tied) names its first place."""
    first: dict[int, str] = {}
    for name, tensor in named:
        tied = first.setdefault(id(tensor), name)
        yield [name, describe_tensor(tensor), None if tied == name else tied]


def _sources(modules: dict[str, torch.nn.Module]) -> Iterator[tuple[str, Json]]:
    kinds = {kind for module in modules.values() for kind in type(module).__mro__}
    for kind in kinds:
        if not kind.__module__.startswith(("torch.", "builtins")):
            yield f"source {class_name(kind)}", source_digest(kind)


def _attributes(path: str, module: torch.nn.Module) -> Iterator[tuple[str, Json]]:
    plain = {
        name: value
        for name, value in attributes(module)
        if name not in _OWN and not _is_machinery(name)
    }
    if plain:
        yield f"attributes {path or '.'}", plain
    if "forward" in module.__dict__:
        yield f"forward {path or '.'}", source_digest(module.__dict__["forward"])
    hooks = [name for name in module.__dict__ if name.endswith("_hooks") and module.__dict__[name]]
    if hooks:
        yield (
            f"hooks {path or '.'}",
            {name: [source_digest(h) for h in module.__dict__[name].values()] for name in hooks},
        )


def _is_machinery(name: str) -> bool:
    """Whether an attribute is nn.Module's own bookkeeping."""
    return name in torch.nn.Module.__annotations__ or name.startswith(
        (
            "_is_torch_compile",
            "_torchdynamo",
            "_parameters",
            "_buffers",
            "_modules",
            "_non_persistent",
            "_backward",
            "_forward",
            "_load",
        )
    )
