"""The backward pass of a captured graph: what a later process needs to run it.

Beside the code that Inductor made for it, that is how it hangs together with the forward pass:
which tensors are saved from one for the other, which outputs have gradients and in which layout
the code expects them. Whatever else AOTAutograd would do around it makes the capture fail, with
the reason.

AOTAutograd's metadata is read as torch 2.11 to 2.13 have it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.runtime.aot.capture import NotCaptured, check_graph, generated, kernels_of
from cachesvc.runtime.aot.externs import extern_places
from cachesvc.runtime.aot.source import reduce_module
from cachesvc.runtime.aot.tuning import run_once

PREFIX = "backward_"
CONSTANTS = "constants.pt"

_PLAIN = ("non_alias", "unsafe_view_alias", "custom_function_view")
_ALIASES = ("is_input", "alias_of_input")


@dataclass(frozen=True, slots=True)
class Tangent:
    """The gradient of an output, as the backward pass takes it: the number of the output, and
    either size and strides or a memory format."""

    output: int
    size: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    format: str | None

    def to_json(self) -> Json:
        layout: Json = self.format
        if self.size is not None and self.stride is not None:
            layout = [list(self.size), list(self.stride)]
        return [self.output, layout]


@dataclass(frozen=True, slots=True)
class Joint:
    """How the two passes hang together.

    The forward pass gives `outputs` outputs, then `checked` tensors to be saved with, and the rest
    without a check that nobody has written to them. Of the outputs, those in `fresh` get a storage
    of their own, those in `aliases` are views of inputs and made elsewhere, those in `plain` have
    no gradient. Inputs in `detached` never have one; of the writing to those in `seen` autograd is
    told. The backward pass takes what was saved and then `tangents`; it reuses the memory of its
    arguments in `donated`.
    """

    outputs: int
    checked: int
    fresh: tuple[int, ...]
    aliases: tuple[int, ...]
    plain: tuple[int, ...]
    detached: tuple[int, ...]
    seen: tuple[int, ...]
    tangents: tuple[Tangent, ...]
    donated: tuple[int, ...]
    deterministic: bool | None

    def to_json(self) -> Json:
        return {
            "outputs": self.outputs,
            "checked": self.checked,
            "fresh": list(self.fresh),
            "aliases": list(self.aliases),
            "plain": list(self.plain),
            "detached": list(self.detached),
            "seen": list(self.seen),
            "tangents": [tangent.to_json() for tangent in self.tangents],
            "donated": list(self.donated),
            "deterministic": self.deterministic,
        }


@dataclass(frozen=True, slots=True)
class Backward:
    """The code of a backward pass with its kernels, as of a graph, and how it joins the forward.

    The addresses of its arguments in `aligned` must be multiples of 16 bytes.
    """

    module: CodeType
    libraries: Mapping[str, Path]
    launches: Mapping[str, Any]
    externs: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    aligned: tuple[int, ...]
    joint: Joint


def backward_of(entry: Any, inputs: Sequence[Any], mutated: Sequence[int]) -> Backward | None:
    """The backward pass of what AOTAutograd has compiled; None for a graph without gradients.

    Its kernels are tuned on what the forward pass gives for `inputs`, of which it writes to those
    in `mutated`. Raises NotCaptured for all that would have to be done besides.
    """
    if entry.compiled_bw is None:
        return None
    _check(entry)
    joint = _joint(entry)
    result = entry.compiled_bw.result
    check_graph(result)
    reduced = reduce_module(result.source_code)
    kinds = dict(reduced.kernels)
    arguments: Sequence[Any] = ()
    if "triton" in kinds.values():
        forward = generated(entry.compiled_fw.result.source_code).call
        arguments = _arguments(run_once(forward, inputs, mutated), joint)
    libraries, launches = kernels_of(result, kinds, arguments, ())
    return Backward(
        module=reduced.code,
        libraries=libraries,
        launches=launches,
        externs=extern_places(reduced.externs),
        constants=dict(result.constants or {}),
        aligned=tuple(result.inputs_to_check),
        joint=joint,
    )


def _check(entry: Any) -> None:
    facts, backward = entry.runtime_metadata, entry.compiled_bw
    strange = {
        "sizes that are saved": backward.num_symints_saved_for_bw_,
        "a state of the compiled autograd": backward.backward_state_indices,
        "objects that are saved": facts.num_opaque_objects_saved_for_bw,
        "tokens": facts.num_backward_tokens,
        "states of random numbers": facts.num_graphsafe_rng_states,
        "outputs of changing shapes": facts.dynamic_outputs,
        "inputs written to backwards": (
            facts.indices_of_inputs_that_requires_grad_with_mutations_in_bw
            or backward.result.mutated_input_idxs
        ),
    }
    if found := [name for name, value in strange.items() if value]:
        raise NotCaptured(f"the backward pass has {' and '.join(found)}")


def _joint(entry: Any) -> Joint:
    facts = entry.runtime_metadata
    infos = list(enumerate(facts.output_info))
    kinds = {number: info.output_type.name for number, info in infos}
    for kind in kinds.values():
        if kind not in _PLAIN + _ALIASES:
            raise NotCaptured(f"an output with gradients is {kind.replace('_', ' ')}")
    saved = entry.num_fw_outs_saved_for_bw
    unchecked = facts.num_tensors_saved_with_no_vc_check or 0
    if saved is None:
        raise NotCaptured("torch does not say how much is saved for the backward pass")
    return Joint(
        outputs=len(infos),
        checked=int(saved) - int(unchecked),
        fresh=tuple(number for number, kind in kinds.items() if kind == "unsafe_view_alias"),
        aliases=tuple(number for number, kind in kinds.items() if kind in _ALIASES),
        plain=tuple(number for number, info in infos if not info.requires_grad),
        detached=tuple(int(number) for number in entry.indices_of_inps_to_detach),
        seen=tuple(int(n) for n in facts.mutated_graph_handled_indices_seen_by_autograd),
        tangents=tuple(_tangents(facts, kinds)),
        donated=tuple(int(number) for number in facts.bw_donated_idxs or ()),
        deterministic=facts.deterministic,
    )


def _tangents(facts: Any, kinds: Mapping[int, str]) -> Iterator[Tangent]:
    wanted = [
        number
        for number, info in enumerate(facts.output_info)
        if kinds[number] in _PLAIN
        and issubclass(info.raw_type, torch.Tensor)
        # torch 2.11 has one word for both
        and getattr(info, "requires_grad_for_backward", info.requires_grad)
    ]
    layouts = list(facts.subclass_tangent_meta)
    if len(layouts) != len(wanted):
        raise NotCaptured(f"the backward pass takes {len(layouts)} gradients, not {len(wanted)}")
    for number, layout in zip(wanted, layouts, strict=True):
        memory = getattr(layout, "memory_format", None)
        if type(layout).__name__ != "PlainTensorMeta" or memory is None:
            raise NotCaptured("a gradient is of a tensor subclass")
        yield _tangent(number, memory)


def _tangent(number: int, memory: Any) -> Tangent:
    if memory.memory_format is not None:
        name = str(memory.memory_format).removeprefix("torch.")
        return Tangent(number, None, None, name)
    size, stride = tuple(memory.size), tuple(memory.stride)
    if not all(type(n) is int for n in (*size, *stride)):
        raise NotCaptured("a gradient has no fixed shape")
    return Tangent(number, size, stride, None)


def _arguments(outputs: Sequence[Any], joint: Joint) -> list[Any]:
    """What the backward pass might be given after a forward pass with these outputs."""
    found = list(outputs[joint.outputs :])
    for tangent in joint.tangents:
        like = torch.ones_like(outputs[tangent.output])
        if tangent.size is not None and tangent.stride is not None:
            like = torch.empty_strided(
                tangent.size, tangent.stride, dtype=like.dtype, device=like.device
            ).fill_(1)
        found.append(like)
    return found


def write_backward(backward: Backward | None, folder: Path) -> Json:
    """Writes the kernels of a backward pass beside those of its graph; what is told of it in words,
    None for nothing."""
    if backward is None:
        return None
    for file in set(backward.libraries.values()):
        shutil.copyfile(file, folder / file.name)
    for name, launch in backward.launches.items():
        shutil.copyfile(launch.cubin, folder / f"{PREFIX}{name}.cubin")
    if backward.constants:
        torch.save(dict(backward.constants), folder / f"{PREFIX}{CONSTANTS}")
    return {
        "libraries": {name: file.name for name, file in backward.libraries.items()},
        "launches": {name: launch.to_json() for name, launch in backward.launches.items()},
        "externs": dict(backward.externs),
        "constants": bool(backward.constants),
        "aligned": list(backward.aligned),
        "joint": backward.joint.to_json(),
    }
