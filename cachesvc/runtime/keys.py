"""The keys of torch and of Triton, kept on this machine.

Both put a hash of their own sources into the key of everything that they cache, and read these
sources at each start: some 2,500 files of torch, and Triton's library of hundreds of megabytes.
Here the result is kept, under a stamp: the path, size and times of every file that could have been
read. A file that is written gets another time of change, which no program can set.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from cachesvc.runtime.remembered import remembered
from cachesvc.runtime.watch import wrap

# Where torch has no sources that its key holds, and most of its files.
_PASSED_OVER = frozenset({"__pycache__", "include", "share"})

# Where each function is defined or known under its name: who imported it has taken it along.
_TORCH = (
    "torch._inductor.codecache",
    "torch._inductor.async_compile",
    "torch._inductor.compile_worker.subproc_pool",
)
_TRITON = (
    "triton.runtime.cache",
    "triton.compiler.compiler",
    "torch._inductor.runtime.triton_compat",
)


class _Kept:
    """The folder that the keys are kept in; None until there is one."""

    folder: Path | None = None


def keep_keys(folder: Path) -> None:
    """Takes both keys from this folder where their stamps still hold, and leaves them there.

    Where torch or Triton has no such function, nothing changes.
    """
    _Kept.folder = folder
    _hook()


@functools.cache
def _hook() -> None:
    import wrapt

    for watched, modules in ((_watch_torch, _TORCH), (_watch_triton, _TRITON)):
        for module in modules:
            wrapt.register_post_import_hook(watched, module)


def _watch_torch(module: ModuleType) -> None:
    _keep(module, "torch_key", "torch")


def _watch_triton(module: ModuleType) -> None:
    _keep(module, "triton_key", "triton")


def _keep(module: ModuleType, function: str, package: str) -> None:
    def key(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        if args or kwargs or _Kept.folder is None:
            return wrapped(*args, **kwargs)
        return remembered(_Kept.folder, package, _stamp(package), wrapped)

    if hasattr(module, function):
        wrap(module, function, key)


@functools.cache
def _stamp(package: str) -> str | None:
    """What the state of a package's files comes to; None if they cannot be seen."""
    module = sys.modules.get(package)
    if module is None or not module.__file__:
        return None
    version = str(getattr(module, "__version__", ""))
    try:
        rows = sorted(_rows(os.path.dirname(module.__file__)))
    except OSError:
        return None
    return hashlib.sha256(repr((version, sys.version, rows)).encode()).hexdigest()


def _rows(folder: str) -> Iterator[tuple[str, int, int, int]]:
    with os.scandir(folder) as items:
        for item in items:
            if item.name in _PASSED_OVER:
                continue
            if item.is_dir():
                yield from _rows(item.path)
            else:
                status = item.stat()
                times = (status.st_mtime_ns, status.st_ctime_ns)
                yield (item.path, status.st_size, *times)
