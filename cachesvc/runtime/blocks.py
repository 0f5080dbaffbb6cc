"""The blocks of a model that repeat: modules of one class and structure, by kind.

A block is worth a graph of its own if it holds two modules or more that hold no others: a linear
layer or a norm is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from cachesvc.core.digest import Json, digest_json
from cachesvc.core.errors import UsageError
from cachesvc.runtime.backend import own_forward
from cachesvc.runtime.code import class_name
from cachesvc.runtime.describe import Describer
from cachesvc.runtime.fold import like
from cachesvc.runtime.structure import OWN
from cachesvc.runtime.tensors import describe_tensor

_LEAST_PARTS = 2
_NUMBERS = (int, float, str)
Blocks = Mapping[str, torch.nn.Module]
_Attributes = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Kind:
    """Blocks of one class and structure, by their places; `structure` is a digest of it.

    `differ` are the attributes in which the blocks differ for all that: those that number them, so
    that no two beside each other have the same value.
    """

    name: str
    structure: str
    blocks: Blocks
    differ: tuple[str, ...]


def find_kinds(model: torch.nn.Module, classes: Iterable[type | str] = ()) -> list[Kind]:
    """The kinds of blocks that `model` holds twice or more, the outermost ones.

    What lies in a block is no block again. With `classes`, given themselves or by name, the blocks
    are the modules of those, also where there is one of a kind. Raises UsageError for a class that
    the model does not hold.
    """
    structures = _Structures()
    wanted = [kind if isinstance(kind, str) else kind.__name__ for kind in classes]
    if wanted:
        _check_held(model, wanted)
        return structures.kinds(dict(_outermost(model, lambda m: type(m).__name__ in wanted)))
    repeated, single = structures.repeated(model), set[int]()
    while True:
        chosen = dict(_outermost(model, lambda m: id(m) in repeated and id(m) not in single))
        kinds = structures.kinds(chosen)
        alone = [id(m) for k in kinds if len(k.blocks) == 1 for m in k.blocks.values()]
        if not alone:
            return kinds
        single.update(alone)  # the others lie in blocks themselves: look into this one


def _check_held(model: torch.nn.Module, wanted: list[str]) -> None:
    held = sorted({type(module).__name__ for _, module in _below(model)})
    for name in wanted:
        if name not in held:
            raise UsageError(
                f"{type(model).__name__} holds no {name}: choose from {', '.join(held)}"
            )


def _below(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    return ((path, module) for path, module in model.named_modules() if module is not model)


def _outermost(
    model: torch.nn.Module, is_chosen: Callable[[torch.nn.Module], bool]
) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that are chosen, without those that lie in another one of them."""
    inside: set[int] = set()
    for path, module in _below(model):
        if id(module) not in inside and is_chosen(module):
            inside.update(map(id, module.modules()))
            yield path, module


class _Structures:
    """What modules are, without the values of their tensors; one that is met again is known."""

    def __init__(self) -> None:
        self._describer = Describer()
        self._known: dict[int, str] = {}

    def repeated(self, model: torch.nn.Module) -> set[int]:
        """The ids of the modules that could be blocks, and are not the only ones of their kind."""
        modules = [module for _, module in _below(model) if _is_block(module)]
        counts = Counter(map(self._of, modules))
        return {id(module) for module in modules if counts[self._of(module)] > 1}

    def kinds(self, blocks: Blocks) -> list[Kind]:
        """Blocks by structure, and by the attributes that they do not have each for itself."""
        attributes = {path: dict(self._attributes(block)) for path, block in blocks.items()}
        groups: dict[str, list[str]] = {}
        for path, block in blocks.items():
            groups.setdefault(self._of(block), []).append(path)
        found: dict[str, list[str]] = {}
        for structure, paths in groups.items():
            numbering = set(_numbering({path: attributes[path] for path in paths}))
            for path in paths:
                kept = {n: v for n, v in attributes[path].items() if n not in numbering}
                found.setdefault(digest_json([structure, kept]), []).append(path)
        return [
            Kind(
                name=type(blocks[paths[0]]).__name__,
                structure=structure,
                blocks={path: blocks[path] for path in paths},
                differ=tuple(sorted(_differing([attributes[path] for path in paths]))),
            )
            for structure, paths in found.items()
        ]

    def _of(self, module: torch.nn.Module) -> str:
        if id(module) not in self._known:
            tensors = (*module._parameters.items(), *module._buffers.items())
            children = ((n, child) for n, child in module._modules.items() if child is not None)
            self._known[id(module)] = digest_json(
                [
                    class_name(type(module)),
                    [[name, _tensor(tensor)] for name, tensor in tensors],
                    [[name, self._of(child)] for name, child in children],
                ]
            )
        return self._known[id(module)]

    def _attributes(self, block: torch.nn.Module) -> Iterator[tuple[str, Json]]:
        """The plain attributes of all modules of a block, and the `forward` that is their own."""
        for path, module in block.named_modules():
            before = f"{path}." if path else ""
            for name, value in self._describer.attributes(module, but=OWN):
                yield f"{before}{name}", value
            if (forward := own_forward(module)) is not None:
                yield f"{before}forward", self._describer.describe(forward)


def _tensor(tensor: torch.Tensor | None) -> Json:
    return None if tensor is None else [describe_tensor(tensor), str(tensor.device)]


def _is_block(module: torch.nn.Module) -> bool:
    """Whether a module can be called, and holds enough for a graph of its own."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    if type(module).forward is torch.nn.Module.forward and own_forward(module) is None:
        return False  # a list of modules
    parts = sum(1 for part in module.modules() if not any(part.children()))
    return parts >= _LEAST_PARTS


def _numbering(attributes: Mapping[str, _Attributes]) -> Iterator[str]:
    """The attributes, numbers or texts, of which no two blocks beside each other have the same
    value; none if no two lie beside each other."""
    beside: dict[str, list[_Attributes]] = {}
    for path, facts in attributes.items():
        beside.setdefault(like(path.rpartition(".")[0]), []).append(facts)
    if len(beside) == len(attributes):
        return
    for name in _differing(attributes.values()):
        plain = all(type(facts.get(name)) in _NUMBERS for facts in attributes.values())
        if plain and all(len(set(_values(group, name))) == len(group) for group in beside.values()):
            yield name


def _differing(attributes: Iterable[_Attributes]) -> Iterator[str]:
    """The names of the attributes that have several values."""
    several = list(attributes)
    names = {name for facts in several for name in facts}
    return (name for name in names if len(set(_values(several, name))) > 1)


def _values(attributes: Iterable[_Attributes], name: str) -> Iterator[str]:
    return (repr(facts.get(name, "absent")) for facts in attributes)
