"""What Triton asks of programs at each start, remembered on this machine.

The key of each kernel holds what ptxas says of its version, and the path of the driver's library
comes from ldconfig, also where nothing is built. Each is a child process or two.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from cachesvc.runtime.remembered import remembered, stamp_of
from cachesvc.runtime.watch import wrap

_LOADER = "/etc/ld.so.cache"
_DRIVER = "libcuda.so.1"
_SETTINGS = ("TRITON_LIBCUDA_PATH", "LD_LIBRARY_PATH")


class _Kept:
    """The folder that the answers are kept in; None until there is one."""

    folder: Path | None = None


def keep_answers(folder: Path) -> None:
    """Takes these answers from this folder while the files they came from are the same.

    What this Triton asks in another way it asks as ever.
    """
    _Kept.folder = folder
    _hook()


@functools.cache
def _hook() -> None:
    import wrapt

    for module, hook in (
        ("triton.knobs", _watch_tools),
        ("triton.backends.nvidia.compiler", _watch_ptxas),
        ("triton.backends.nvidia.driver", _watch_driver),
    ):
        wrapt.register_post_import_hook(hook, module)


def _watch_tools(module: ModuleType) -> None:
    """`NvidiaTool.from_path`, which asks a tool for its release."""
    tool = getattr(module, "NvidiaTool", None)

    def from_path(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        if _Kept.folder is None or kwargs or len(args) != 1 or not isinstance(args[0], str):
            return wrapped(*args, **kwargs)
        path = args[0]
        find_out = lambda: getattr(wrapped(path), "version", None)  # noqa: E731
        release = remembered(_Kept.folder, f"release of {path}", stamp_of(path), find_out)
        return None if release is None else module.NvidiaTool(path, release)

    fields = tuple(getattr(tool, "__dataclass_fields__", ()))
    if hasattr(tool, "from_path") and fields == ("path", "version"):
        wrap(module, "NvidiaTool.from_path", from_path)


def _watch_ptxas(module: ModuleType) -> None:
    """`get_ptxas_version`, for the ptxas that `get_ptxas` gives."""

    def version(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        path = None if kwargs else _ptxas(module, args)
        if _Kept.folder is None or path is None:
            return wrapped(*args, **kwargs)
        find_out = functools.partial(wrapped, *args)
        return remembered(_Kept.folder, f"version of {path}", stamp_of(path), find_out)

    if hasattr(module, "get_ptxas_version") and hasattr(module, "get_ptxas"):
        wrap(module, "get_ptxas_version", version)


def _ptxas(module: ModuleType, args: Any) -> str | None:
    """The path of the ptxas that would be asked; None where this Triton would ask none, or says
    so in another way."""
    try:
        if module.knobs.nvidia.mock_ptx_version is not None:
            return None
        path = module.get_ptxas(*args).path
    except Exception:  # Triton's own code: it says what is wrong when it is asked
        return None
    return path if isinstance(path, str) else None


def _watch_driver(module: ModuleType) -> None:
    """`libcuda_dirs`, as long as the driver's library lies in one of them."""

    def directories(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        if _Kept.folder is None or args or kwargs:
            return wrapped(*args, **kwargs)
        find_out = lambda: os.pathsep.join(wrapped())  # noqa: E731
        told = remembered(_Kept.folder, "libcuda", _loader_stamp(), find_out).split(os.pathsep)
        there = any(os.path.exists(os.path.join(folder, _DRIVER)) for folder in told)
        return told if there else wrapped()

    if hasattr(module, "libcuda_dirs"):
        wrap(module, "libcuda_dirs", directories)


def _loader_stamp() -> str | None:
    """What the loader's cache and the settings that count beside it come to."""
    cache = stamp_of(_LOADER)
    settings = [os.environ.get(name, "") for name in _SETTINGS]
    return None if cache is None else f"{cache} {settings}"
