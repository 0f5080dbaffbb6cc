"""Triton kernels found whichever ptxas made them.

The key of a Triton kernel holds the version of ptxas. Inductor's worker processes use the one that
torch ships, if it ships one; the process itself uses Triton's own until it has compiled a kernel.
So the same kernel has two keys, and a warm start, in which no worker runs, would look for the one
and build what lies there under the other. Torch itself uses both kinds side by side.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cachesvc.local.live import TRITON
from cachesvc.runtime.watch import wrap

_MODULE = "triton.compiler.compiler"
_FUNCTION = "get_cache_key"


@functools.cache
def find_either_ptxas() -> None:
    """Makes Triton look under the other key, where nothing lies under its own.

    Where this Triton has no `get_cache_key`, or calls it in another way, nothing changes.
    """
    import wrapt

    wrapt.register_post_import_hook(_watch, _MODULE)


def _watch(module: ModuleType) -> None:
    def get_cache_key(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        key = wrapped(*args, **kwargs)
        backend = args[1] if len(args) > 1 else kwargs.get("backend")
        if not isinstance(key, str) or backend is None or _is_there(key):
            return key
        return next(filter(_is_there, _others(key, str(backend.hash()))), key)

    if hasattr(module, _FUNCTION):
        wrap(module, _FUNCTION, get_cache_key)


def _others(key: str, own: str) -> list[str]:
    """The keys with another version of ptxas; `own` is `VERSION-ARCHITECTURE`."""
    version, _, architecture = own.rpartition("-")
    told = [text for text in _versions() if text != version]
    return [key.replace(f"-{own}-", f"-{text}-{architecture}-", 1) for text in told]


@functools.cache
def _versions() -> tuple[str, ...]:
    """What torch's ptxas and Triton's own say of themselves, where they are."""
    return tuple(text for text in map(_version, (_torchs(), _tritons())) if text)


def _torchs() -> Path:
    """Where torch's worker processes look for it."""
    return Path(torch.__file__).parent / "bin" / "ptxas"


def _tritons() -> Path:
    """Where Triton has its own."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


def _version(ptxas: Path) -> str:
    try:
        return subprocess.run(
            [ptxas, "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _is_there(key: str) -> bool:
    """Whether Triton's directory has an entry under this key, named as Triton names it."""
    digest = hashlib.sha256(key.encode()).digest()
    name = base64.b32encode(digest).decode().rstrip("=")
    folder = os.environ.get(TRITON)
    return folder is not None and os.path.isdir(os.path.join(folder, name))
