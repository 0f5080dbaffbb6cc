"""Facts of this process that move the compiler's own keys, beyond model and environment."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from cachesvc.core.components import Components
from cachesvc.core.context import OPS
from cachesvc.runtime.operators import operator_packages

# Variables that say where things lie, how much is printed or how many workers compile; and the
# host's: none changes what is compiled.
_FLAG = re.compile(
    r"(TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|INDUCTOR|TRITON)_\w+|TORCHINDUCTOR\w+|CXX"
)
_SILENT = re.compile(
    r".*(_DIR|_PATH|_HOME|_LOGS?|_TRACE|_LOGLEVEL|_VERBOSE|_THREADS|_ALLOC_CONF|_PID|_CACHE)$"
)

_SWITCHES = {
    "attention flash": ("torch.backends.cuda", "flash_sdp_enabled"),
    "attention memory-efficient": ("torch.backends.cuda", "mem_efficient_sdp_enabled"),
    "attention math": ("torch.backends.cuda", "math_sdp_enabled"),
    "attention cudnn": ("torch.backends.cuda", "cudnn_sdp_enabled"),
    "cudnn": ("torch.backends.cudnn", "enabled"),
    "cudnn benchmark": ("torch.backends.cudnn", "benchmark"),
    "cudnn deterministic": ("torch.backends.cudnn", "deterministic"),
    "cudnn tf32": ("torch.backends.cudnn", "allow_tf32"),
}


def read_context() -> Components:
    """The context of this process: dtype, precision, threads, determinism, attention, operators,
    flags, overrides.

    Configuration is read only where its module is imported: before that nobody has changed it.
    """
    return Components.of(dict(_facts()))


def _facts() -> Iterator[tuple[str, str]]:
    yield "default dtype", str(torch.get_default_dtype())
    yield "matmul precision", torch.get_float32_matmul_precision()
    yield "threads", str(torch.get_num_threads())
    yield "deterministic", str(torch.are_deterministic_algorithms_enabled())
    yield from _switches()
    if torch.cuda.is_initialized():
        yield "device index", str(torch.cuda.current_device())
    for name, version in operator_packages():
        yield f"{OPS}{name}", version
    for name, value in sorted(os.environ.items()):
        if _FLAG.fullmatch(name) and not _SILENT.fullmatch(name):
            yield f"variable {name}", value[:200]
    for module in ("torch._inductor.config", "torch._dynamo.config"):
        for name, value in _overrides(sys.modules.get(module)):
            yield f"{module.split('.')[1].lstrip('_')} {name}", value


def _switches() -> Iterator[tuple[str, str]]:
    """Which kernels torch may take; what this torch has not, or will not tell, is left out."""
    for name, (module, switch) in _SWITCHES.items():
        with suppress(Exception):  # torch refuses to read what was set in its newer way
            value = getattr(sys.modules[module], switch)
            yield name, str(value() if callable(value) else value)


def _overrides(module: Any) -> Iterator[tuple[str, str]]:
    """The settings of a torch configuration module that are not as torch has them.

    Where this torch keeps them in another way, none are seen, so none explain a miss.
    """
    for name, entry in sorted(getattr(module, "_config", {}).items()):
        if getattr(entry, "deprecated", False) or getattr(entry, "alias", None):
            continue  # another name for a setting that comes by itself, and reading it warns
        if name.endswith("recompile_limit"):
            continue  # in no key, and regions raise it while they are compiled
        value = getattr(module, name, None)
        default = getattr(entry, "default", value)
        if isinstance(value, bool | int | float | str) and value != default:
            yield name, repr(value)[:200]
