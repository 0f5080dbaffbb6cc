"""The parts of a module that is a model: its tree, tensors, attributes, hooks, modes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.runtime.backend import compile_options, is_compiled_itself, original, own_forward
from cachesvc.runtime.code import class_name
from cachesvc.runtime.fold import Facts, fold
from cachesvc.runtime.reach import Reach
from cachesvc.runtime.tensors import describe_tensor

# What every module has of its own; all of it is described elsewhere or holds no state of a model.
OWN = frozenset(
    {*torch.nn.Module.__annotations__, *torch.nn.Module().__dict__, "_is_torch_compile"}
)
Parts = Iterator[tuple[str, Json]]


class Structure:
    """One module with all below it, at its place: empty for the model itself."""

    def __init__(self, model: torch.nn.Module, place: str, reach: Reach) -> None:
        self._place = place
        self._modules = dict(_modules(model, place))
        self._inner = {path: original(module) for path, module in self._modules.items()}
        self._reach = reach
        self._attributes: dict[str, Facts] = {}
        self._forwards: dict[str, Facts] = {}
        self._hooks: dict[str, Facts] = {}
        for path, module in self._inner.items():
            reach.describer.places.setdefault(id(module), path or ".")
        for path, module in self._inner.items():
            self._follow(path, module)

    @property
    def modules(self) -> list[torch.nn.Module]:
        """All modules, the compiled ones as they were given to the compiler."""
        return list(self._inner.values())

    def parts(self) -> Parts:
        """The components, once all code was followed."""
        inner = self._inner
        first = {id(module): path for path, module in inner.items()}
        tree = {path: _branch(path, module, first) for path, module in inner.items()}
        yield from _named("module", fold(tree))
        yield f"training {self._place}".rstrip(), _modes(inner)
        for kind in ("parameter", "buffer"):
            yield from self._tensors(kind)
        yield from self._described()
        yield from _named("forward", fold(self._forwards))
        yield from _named("hooks", fold(self._hooks))
        yield from _named("compile", fold(dict(self._compiled())))

    def _compiled(self) -> Iterator[tuple[str, Facts]]:
        """The parts that are compiled by themselves."""
        for path, module in self._modules.items():
            if path != self._place and is_compiled_itself(module):
                yield path, compile_options(module)

    def _follow(self, path: str, module: torch.nn.Module) -> None:
        reach, describer, at = self._reach, self._reach.describer, path or "."
        reach.follow_class(type(module))
        called = [own_forward(module), *(h for _, hooks in _hooks(module) for h in hooks)]
        for function in called:
            reach.follow(function)
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                reach.follow_class(type(tensor))

        def attributes() -> None:
            self._attributes[path] = dict(describer.attributes(module, path or ".", but=OWN))

        def forward() -> None:
            if called[0] is not None:
                self._forwards[path] = {"code": describer.describe(called[0], f"forward {at}")}

        def hooks() -> None:
            found = {name: self._outside(each, f"hook {at}") for name, each in _hooks(module)}
            if any(found.values()):
                self._hooks[path] = {name: each for name, each in found.items() if each}

        reach.later(attributes)
        reach.later(forward)
        reach.later(hooks)

    def _outside(self, hooks: list[Any], place: str) -> list[Json]:
        """Hooks but those that the model's own code sets when it is called."""
        mine = [hook for hook in hooks if not self._reach.is_made_inside(hook)]
        return [self._reach.describer.describe(hook, f"{place}.{n}") for n, hook in enumerate(mine)]

    def _tensors(self, kind: str) -> Parts:
        """What most tensors have in common once, and what each has of its own."""
        found: dict[str, Facts] = {}
        first: dict[int, str] = {}
        for path, module in self._inner.items():
            for name, tensor in vars(module)[f"_{kind}s"].items():
                place = f"{path}.{name}".lstrip(".")
                if tensor is None:
                    found[place] = {"none": True}
                elif (tied := first.setdefault(id(tensor), place)) != place:
                    found[place] = {"tied": tied}
                else:
                    found[place] = _tensor(self._reach, tensor)
        shapes = {place: _only(facts, of_all=False) for place, facts in found.items()}
        common = fold(
            {p: _only(f, of_all=True) for p, f in found.items() if "dtype" in f}, lambda place: ""
        )
        if common.get("") and len(found) > 1:
            yield f"{kind}s {self._place}".rstrip(), dict(common[""])
        rest = {p: {**shapes[p], **common.get(p, {})} for p in found}
        yield from _named(kind, fold(rest))

    def _described(self) -> Parts:
        for path, facts in fold(self._attributes).items():
            for name, value in facts.items():
                yield f"attribute {_below(path, name)}", value


def _tensor(reach: Reach, tensor: torch.Tensor) -> Facts:
    facts = describe_tensor(tensor, reach.describer.describe)
    if "shape" in facts and facts["stride"] == _contiguous(tensor.shape):
        del facts["stride"]
    return facts


def _contiguous(shape: torch.Size) -> Json:
    strides: list[Json] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def _only(facts: Facts, *, of_all: bool) -> Facts:
    """Those facts that a model's tensors have in common as a rule, or the others."""
    return {n: v for n, v in facts.items() if (n in {"class", "dtype", "requires_grad"}) == of_all}


def _named(kind: str, facts: Mapping[str, Facts]) -> Parts:
    for path, values in facts.items():
        yield f"{kind} {path or '.'}", dict(values)


def _modules(model: torch.nn.Module, place: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module once, by its first path; a compiled one stands for what was compiled."""
    seen: set[int] = set()
    waiting = [(place, model)]
    while waiting:
        path, module = waiting.pop()
        inner = original(module)
        if id(inner) not in seen:
            seen.add(id(inner))
            yield path, module
            waiting += reversed([(_below(path, name), c) for name, c in _children(inner)])


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _children(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    return [(name, child) for name, child in module._modules.items() if child is not None]


def _branch(path: str, module: torch.nn.Module, first: Mapping[int, str]) -> Facts:
    """A module's class, the names of what it holds, and those children that came before."""
    children = [name for name, _ in _children(module)]
    numbered = children == [str(number) for number in range(len(children))]
    facts: dict[str, Json] = {"class": class_name(type(module))}
    if children:
        facts["children"] = len(children) if numbered else list(children)
    for kind, tensors in (("parameters", module._parameters), ("buffers", module._buffers)):
        if tensors:
            facts[kind] = list(tensors)
    places = {name: first[id(original(child))] for name, child in _children(module)}
    shared: Json = {n: at for n, at in places.items() if at != _below(path, n)}
    return {**facts, "shared": shared} if shared else facts


def _modes(modules: Mapping[str, torch.nn.Module]) -> Json:
    """Which modules are in training mode, said by the fewer ones."""
    training = [path for path, module in modules.items() if module.training]
    evaluating = [path for path, module in modules.items() if not module.training]
    if not training or not evaluating:
        return bool(training)
    fewer = len(training) <= len(evaluating)
    return {"training": list(training)} if fewer else {"eval": list(evaluating)}


def follow_global_hooks(reach: Reach) -> None:
    """The hooks that torch runs for every module; those that it runs at a registration do not."""
    for name, hooks in vars(torch.nn.modules.module).items():
        if name.startswith("_global_") and name.endswith("_hooks") and "registration" not in name:
            found = list(hooks.values())
            for hook in found:
                reach.follow(hook)
            if found:
                reach.later(functools.partial(_note_hooks, reach, name, found))


def _note_hooks(reach: Reach, name: str, hooks: list[Any]) -> None:
    reach.note("hooks torch", [name, [reach.describer.describe(hook) for hook in hooks]])


def _hooks(module: torch.nn.Module) -> list[tuple[str, list[Any]]]:
    """The hooks that run when a module is called; those of its state dict do not."""
    return [
        (name, list(hooks.values()))
        for name, hooks in module.__dict__.items()
        if name.endswith("_hooks") and "state_dict" not in name and isinstance(hooks, dict)
    ]
