"""The vector instructions that Inductor would find, if its compiler can do what the CPU can.

Inductor learns them by compiling test libraries for each and loading those in child processes.
What it asks about is what the CPU has in any case; the compiler's part matters only to a build.
"""

from __future__ import annotations

import copy
import platform
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

_PROBED = ("x86_64", "AMD64")
_OPTIONAL = ("_is_amx_fp16_supported", "_is_avx512_bf16_supported")


def are_probed(module: ModuleType) -> bool:
    """Whether torch's module of vector instructions probes on this kind of CPU, as far as it is
    known here."""
    known = hasattr(module, "x86_isa_checker") and hasattr(module, "supported_vec_isa_list")
    return known and platform.machine() in _PROBED


def without_probe(module: ModuleType) -> list[Any]:
    """What `valid_vec_isa_list` would give, best first, with nothing compiled.

    The values are copies: what torch finds out by itself later is kept in its own.
    """
    flags = module.x86_isa_checker()
    names = ((isa, str(isa).split()) for isa in module.supported_vec_isa_list)
    return list(_usable((isa, needs) for isa, needs in names if all(n in flags for n in needs)))


def _usable(found: Iterator[tuple[Any, list[str]]]) -> Iterator[Any]:
    for isa, needs in found:
        # Linux gives the tiles of AMX only to a process that asks for them.
        if "amx_tile" in needs and not _says("_init_amx"):
            continue
        complete = copy.copy(isa)
        for name in _OPTIONAL:
            if hasattr(isa, name):
                setattr(complete, name, _says(name))
        yield complete


def _says(name: str) -> bool:
    """What a function of torch.cpu says; False where this torch has none of that name."""
    function: Callable[[], bool] = getattr(torch.cpu, name, bool)
    return bool(function())
