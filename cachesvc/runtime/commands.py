"""Command lines of the C++ compiler that are never run, only hashed: made without it.

The key of a library holds the command that would build it. To write that down Inductor runs the
compiler twice, for its name and its kind, and imports setuptools for two paths. Within `unrun` a
thread gets what these come to on nearly every machine. Where they come to something else the
library is looked up under another name and is not found, so whoever looks must look again without.
"""

from __future__ import annotations

import builtins
import functools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from cachesvc.runtime.watch import wrap

_MODULE = "torch._inductor.cpp_builder"
_EXTENSIONS = "torch.utils.cpp_extension"
_INTEL = ("icx", "icpx", "icc", "icpc", "dpcpp")


class _Thread(threading.local):
    unrun = False


_thread = _Thread()


@contextmanager
def unrun() -> Iterator[None]:
    """Within it this thread's command lines are made without the compiler."""
    before, _thread.unrun = _thread.unrun, True
    try:
        yield
    finally:
        _thread.unrun = before


@functools.cache
def watch_commands() -> None:
    """Makes `unrun` work. What this torch does not have, or has in another form, is left as it is:
    then the compiler is asked, or setuptools imported, as ever."""
    import wrapt

    wrapt.register_post_import_hook(_watch, _MODULE)


def _watch(module: ModuleType) -> None:
    for name, instead in (
        ("cpp_compiler_search", _first_there),
        ("_is_intel_compiler", _is_intels),
    ):
        if hasattr(module, name):
            wrap(module, name, _unless_run(instead))
    related = getattr(module, "_get_torch_related_args", None)
    if isinstance(related, FunctionType):
        wrap(module, "_get_torch_related_args", _unless_run(_without_extensions(related)))


def _unless_run(instead: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper that asks `instead` within `unrun`; its None stands for no answer."""

    def ask(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        found = instead(*args, **kwargs) if _thread.unrun else None
        return wrapped(*args, **kwargs) if found is None else found

    return ask


def _first_there(search: Any) -> str | None:
    """The first compiler that lies on PATH; torch takes the first that runs."""
    return next((name for name in search if name and shutil.which(name)), None)


def _is_intels(compiler: str) -> bool | None:
    """Whether a compiler is Intel's, by the name of its file."""
    found = shutil.which(compiler)
    return None if found is None else Path(os.path.realpath(found)).name.startswith(_INTEL)


def _without_extensions(function: FunctionType) -> Callable[..., Any]:
    """The function with two values in place of a module that imports setuptools.

    It gives no answer if it wants more of that module.
    """
    root = Path(torch.__file__).parent
    includes = [str(root / "include"), str(root / "include" / "torch" / "csrc" / "api" / "include")]
    instead = SimpleNamespace(
        include_paths=lambda: list(includes), TORCH_LIB_PATH=str(root / "lib")
    )

    def load(name: str, *args: Any, **kwargs: Any) -> Any:
        return instead if name == _EXTENSIONS else builtins.__import__(name, *args, **kwargs)

    scope = {**function.__globals__, "__builtins__": {**vars(builtins), "__import__": load}}
    light = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )

    def ask(*args: Any, **kwargs: Any) -> Any:
        try:
            return light(*args, **kwargs)
        except (ImportError, AttributeError, TypeError):
            return None

    return ask
