"""Regional compilation: each kind of repeated block is compiled once, the rest is left alone.

The blocks of a kind share one function, so that they share its graphs. Left to itself, torch lets
all blocks of one class share a limit of eight graphs, and runs them as they were written where none
fits; and it takes the width of another kind for a dimension that changes.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from cachesvc.core.errors import UsageError
from cachesvc.core.regions import Region, Regions
from cachesvc.runtime.backend import is_compiled_itself, region_of
from cachesvc.runtime.blocks import Kind, find_kinds

# The first block of a kind is often called in a way of its own (its input has other strides, or
# needs no gradient), the second one as all others are.
_OPEN = 2
_ODD = re.compile(r"\W")
_GRAPH_MODES = ("reduce-overhead", "max-autotune")
_STEPS = (
    "with CUDA graphs, call torch.compiler.cudagraph_mark_step_begin() before each call of the"
    " model: to torch each block is a call of its own, which may write over what another one gave"
)

_Blocks = Collection[torch.nn.Module]
_Compiled = Iterator[tuple[torch.nn.Module, Any]]


def compile_regions(
    model: torch.nn.Module, *, classes: Iterable[type | str] = (), **compile_options: Any
) -> Regions:
    """Compiles the repeated blocks of a model in place, each kind once, and says which.

    A kind are two blocks or more of one class with equal structure: submodules, shapes and dtypes
    of parameters and buffers, plain attributes but those that number the blocks. The outermost
    ones are taken; what lies in them is compiled with them. `classes` names the classes of the
    blocks instead, as themselves or by name; then also a block that is the only one of its kind is
    compiled. `compile_options` are those of `torch.compile`.

    Weights can be loaded before or after. Blocks of which code reads what differs between them
    (`layer_idx`) are traced each for itself, and what the compiler has made for one serves the
    others out of its cache. Nothing is compiled where no block repeats: `kinds` is empty then.
    Called again, it leaves alone what it has compiled with the same options, and compiles the rest.
    What it has compiled before and does not choose now stays compiled, and is named with the kinds,
    unless it lies in a block that is compiled now, or holds one.

    Raises UsageError for what is no module, for a model that holds none or is compiled in another
    way, a class that it does not hold, and options that `torch.compile` does not take; then
    nothing was changed.
    """
    _check(model)
    kinds = find_kinds(model, classes)
    compiled = [item for kind in kinds for item in _compile(kind, compile_options)]
    blocks = [block for kind in kinds for block in kind.blocks.values()]
    for module in _crossed(model, blocks):
        module._compiled_call_impl = None
    for module, call in compiled:
        module._compiled_call_impl = call
    return _regions(model, [*kinds, *_others(model, blocks)])


def _check(model: object) -> None:
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"a {type(model).__name__} has no blocks: give a torch.nn.Module, each model by itself"
        )
    for path, module in model.named_modules():
        if is_compiled_itself(module) and region_of(module) is None:
            raise UsageError(
                f"{path or 'the model'} is compiled already: give the model as it was built, and"
                " compile_regions the options of torch.compile"
            )
    if not any(model.children()):
        raise UsageError(
            f"{type(model).__name__} holds no other module, so no block: call torch.compile(model)"
        )


def _crossed(model: torch.nn.Module, blocks: _Blocks) -> Iterator[torch.nn.Module]:
    """The compiled modules that lie in one of these blocks, or hold one."""
    chosen = set(map(id, blocks))
    inside = {id(module) for block in blocks for module in block.modules()}
    for module in model.modules():
        if region_of(module) is None or id(module) in chosen:
            continue
        if id(module) in inside or any(id(below) in chosen for below in module.modules()):
            yield module


def _others(model: torch.nn.Module, blocks: _Blocks) -> list[Kind]:
    """The kinds that an earlier call has compiled, without those of these blocks."""
    chosen = set(map(id, blocks))
    found: dict[tuple[str, str], Kind] = {}
    for path, module in model.named_modules():
        region = region_of(module)
        if region is None or id(module) in chosen:
            continue
        name, structure, _ = region
        before = found.get((name, structure), Kind(name, structure, {}, _differ(module)))
        found[name, structure] = replace(before, blocks={**before.blocks, path: module})
    return list(found.values())


def _differ(block: torch.nn.Module) -> tuple[str, ...]:
    """In which attributes the blocks differ that were compiled with this one."""
    call = block._compiled_call_impl
    function = getattr(call, "_torchdynamo_orig_callable", call)
    differ: tuple[str, ...] = getattr(function, "differ", ())
    return differ


def _compile(kind: Kind, options: Mapping[str, Any]) -> _Compiled:
    """What calls each block of a kind; the calls that there are, if they are what was asked for."""
    wanted = kind.name, kind.structure, dict(options)
    blocks = list(kind.blocks.values())
    if all(region_of(block) == wanted for block in blocks):
        yield from ((block, block._compiled_call_impl) for block in blocks)
        return
    for group in _groups(kind):
        function = _function(kind)
        function.region = wanted  # type: ignore[attr-defined]
        function.differ = kind.differ  # type: ignore[attr-defined]
        for number, block in enumerate(group):
            call = _torch_compile(function, {**options, **_isolation(number, options)})
            yield block, types.MethodType(call, block)


def _torch_compile(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """torch takes entries out of the options that it is given, so it gets a copy."""
    copied: dict[str, Any] = {n: dict(v) if isinstance(v, dict) else v for n, v in options.items()}
    try:
        return torch.compile(function, **copied)
    except (TypeError, RuntimeError, ValueError) as error:
        raise UsageError(f"torch.compile does not take these options: {error}") from error


def _isolation(number: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """What gives each block of a function a limit of graphs for itself; the first ones have theirs
    together, and all others find those graphs too."""
    if not _isolates():
        return {}
    if number >= _OPEN:
        return {"isolate_recompiles": True}
    return {"recompile_limit": _OPEN * (options.get("recompile_limit") or _limits()[0])}


def _groups(kind: Kind) -> Iterator[list[torch.nn.Module]]:
    """The blocks that share a function: as many as torch lets have all their graphs.

    Where torch cannot keep the graphs of one block apart from those of another, blocks that differ
    have a function each, and are traced each.
    """
    blocks = list(kind.blocks.values())
    size = 1 if kind.differ and not _isolates() else _most_blocks()
    for start in range(0, len(blocks), size):
        yield blocks[start : start + size]


def _isolates() -> bool:
    """Whether this torch takes `isolate_recompiles`, as 2.13 does; without it blocks that differ
    are traced each, and equal ones have one limit of graphs together."""
    return "isolate_recompiles" in inspect.signature(torch.compile).parameters


def _most_blocks() -> int:
    """How many blocks of one function can each come to their limit of graphs before the function
    comes to the limit for all."""
    each, every = _limits()
    return max(1, every // max(1, each))


def _limits() -> tuple[int, int]:
    """How many graphs torch allows one region of a function, and a function as a whole; its
    defaults where it keeps these settings elsewhere."""
    from torch._dynamo import config

    each = getattr(config, "recompile_limit", 8)
    return int(each), int(getattr(config, "accumulated_recompile_limit", 256))


def _function(kind: Kind) -> types.FunctionType:
    """A function that is the kind's own, and calls a block with its hooks.

    torch keeps graphs by code object, and by the name of the code what it has learned of shapes.
    The name is the same in every process.
    """
    name = f"{_ODD.sub('_', kind.name)}_{kind.structure[:8]}"
    code = _call.__code__.replace(co_name=name)
    return types.FunctionType(code, _call.__globals__, name)


def _call(block: Any, *args: Any, **kwargs: Any) -> Any:
    return block._call_impl(*args, **kwargs)


def _regions(model: torch.nn.Module, kinds: list[Kind]) -> Regions:
    blocks = {id(block) for kind in kinds for block in kind.blocks.values()}
    inside = {id(p) for k in kinds for block in k.blocks.values() for p in block.parameters()}
    return Regions(
        model=type(model).__name__,
        kinds=tuple(
            Region(
                kind=kind.name,
                places=tuple(kind.blocks),
                parameters=_elements(next(iter(kind.blocks.values())).parameters()),
                differ=kind.differ,
            )
            for kind in kinds
        ),
        parameters=_elements(model.parameters()),
        outside=_elements(p for p in model.parameters() if id(p) not in inside),
        alone=tuple(_alone(model, "", blocks)),
        notes=(_STEPS,) if any(map(_makes_cuda_graphs, kinds)) else (),
    )


def _elements(parameters: Iterable[torch.nn.Parameter]) -> int:
    """How many elements they have; one whose shape comes with the first call has none yet."""
    return sum(p.numel() for p in parameters if not torch.nn.parameter.is_lazy(p))


def _alone(module: torch.nn.Module, path: str, blocks: set[int]) -> Iterator[str]:
    """The outermost modules that hold no block and are in none."""
    for name, child in module.named_children():
        place = f"{path}.{name}" if path else name
        if any(id(below) in blocks for below in child.modules()):
            if id(child) not in blocks:
                yield from _alone(child, place, blocks)
        elif any(child.children()) or type(child).forward is not torch.nn.Module.forward:
            yield place


def _makes_cuda_graphs(kind: Kind) -> bool:
    region = region_of(next(iter(kind.blocks.values())))
    options = {} if region is None else region[2]
    asked = (options.get("options") or {}).get("triton.cudagraphs", False)
    return bool(asked) or options.get("mode") in _GRAPH_MODES
