"""Facts of this process that move the compiler's own keys, beyond model and environment."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

from cachesvc.core.components import Components

# Variables that say where things lie, how much is printed or how many workers compile; and the
# host's: none changes what is compiled.
_FLAG = re.compile(
    r"(TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|INDUCTOR|TRITON)_\w+|TORCHINDUCTOR\w+"
)
_SILENT = re.compile(
    r".*(_DIR|_PATH|_HOME|_LOGS?|_TRACE|_LOGLEVEL|_VERBOSE|_THREADS|_ALLOC_CONF|_PID|_CACHE)$"
)


def read_context() -> Components:
    """The context of this process: dtype, precision, threads, determinism, flags, overrides.

    Configuration is read only where its module is imported: before that nobody has changed it.
    """
    return Components.of(dict(_facts()))


def _facts() -> Iterator[tuple[str, str]]:
    yield "default dtype", str(torch.get_default_dtype())
    yield "matmul precision", torch.get_float32_matmul_precision()
    yield "threads", str(torch.get_num_threads())
    yield "deterministic", str(torch.are_deterministic_algorithms_enabled())
    for name, value in sorted(os.environ.items()):
        if _FLAG.fullmatch(name) and not _SILENT.fullmatch(name):
            yield f"variable {name}", value[:200]
    for module in ("torch._inductor.config", "torch._dynamo.config"):
        for name, value in _overrides(sys.modules.get(module)):
            yield f"{module.split('.')[1].lstrip('_')} {name}", value


def _overrides(module: Any) -> Iterator[tuple[str, str]]:
    """The settings of a torch configuration module that are not as torch has them.

    Where this torch keeps them in another way, none are seen, so none explain a miss.
    """
    for name, entry in sorted(getattr(module, "_config", {}).items()):
        if getattr(entry, "deprecated", False) or getattr(entry, "alias", None):
            continue  # another name for a setting that comes by itself, and reading it warns
        value = getattr(module, name, None)
        default = getattr(entry, "default", value)
        if isinstance(value, bool | int | float | str) and value != default:
            yield name, repr(value)[:200]
