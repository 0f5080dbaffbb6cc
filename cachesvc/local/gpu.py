"""GPUs as recorded properties, and which of them a process sees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_ORDINAL = re.compile(r"\+?\d+")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver describes it.

    `name` is what Inductor keys on: the marketing name for CUDA, gcnArchName for ROCm.
    `capability` is "9.0" for CUDA, the gfx name for ROCm. `slices` are the MIG instances of a
    GPU in MIG mode; such a GPU cannot be used whole.
    """

    name: str
    capability: str
    uuid: str = ""
    pci: str = ""
    slices: tuple[Gpu, ...] = ()

    @property
    def usable(self) -> Gpu:
        """What CUDA uses when told to use this GPU: its first slice, else the GPU itself."""
        return self.slices[0] if self.slices else self


def alike(gpus: Iterable[Gpu]) -> bool:
    """Whether all usable parts of `gpus` have one name and one capability."""
    parts = (part for gpu in gpus for part in gpu.slices or (gpu,))
    return len({(part.name, part.capability) for part in parts}) <= 1


def by_uuid(selection: str) -> bool:
    """Whether a device list names devices by UUID, so that their order says nothing."""
    return all(token.strip().startswith(("GPU-", "MIG-")) for token in selection.split(","))


def select(gpus: Sequence[Gpu], selection: str | None) -> tuple[Gpu, ...]:
    """The GPUs that a device list such as CUDA_VISIBLE_DEVICES leaves, in its order.

    None leaves all, "" none. A token that fits no GPU ends the list; one GPU named twice empties
    it: torch.cuda's `_parse_visible_devices` and the CUDA Programming Guide say so.
    """
    if selection is None:
        return tuple(gpu.usable for gpu in gpus)
    chosen: list[Gpu] = []
    for token in selection.split(","):
        gpu = _find(gpus, token.strip())
        if gpu is None:
            break
        if any(gpu is earlier for earlier in chosen):
            return ()
        chosen.append(gpu)
    return tuple(chosen)


def _find(gpus: Sequence[Gpu], token: str) -> Gpu | None:
    if token.startswith("GPU-"):
        return _only([gpu.usable for gpu in gpus if gpu.uuid.startswith(token)])
    if token.startswith("MIG-"):
        parts = (part for gpu in gpus for part in gpu.slices)
        return _only([part for part in parts if part.uuid.startswith(token)])
    ordinal = _ORDINAL.match(token)
    if ordinal is None or int(ordinal.group()) >= len(gpus):
        return None
    return gpus[int(ordinal.group())].usable


def _only(gpus: Sequence[Gpu]) -> Gpu | None:
    return gpus[0] if len(gpus) == 1 else None


def own_gpu(visible: Sequence[Gpu], environ: Mapping[str, str]) -> Gpu | None:
    """The GPU this process works on: the LOCAL_RANK-th of the visible ones, else the first."""
    if not visible:
        return None
    rank = environ.get("LOCAL_RANK", "")
    ordinal = int(rank) if rank.isdecimal() else 0
    return visible[ordinal] if ordinal < len(visible) else visible[0]
