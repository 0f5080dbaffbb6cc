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
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from cachesvc.runtime.watch import wrap

_MODULE = "torch._inductor.cpp_builder"
_HOLDER = "torch.utils"
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
    for name in ("_get_torch_related_args", "get_cpp_torch_device_options"):
        function = getattr(module, name, None)
        if isinstance(function, FunctionType):
            wrap(module, name, _unless_run(_without_extensions(function)))


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
    """The function with a few paths in place of a module that imports setuptools.

    It gives no answer if that module is there already, or if more of it is wanted.
    """
    instead = {_EXTENSIONS: _Paths(), _HOLDER: SimpleNamespace(cpp_extension=_Paths())}

    def load(
        name: str, scope: Any = None, local: Any = None, names: Any = (), level: int = 0
    ) -> Any:
        if name == _EXTENSIONS or (name == _HOLDER and tuple(names or ()) == ("cpp_extension",)):
            return instead[name]
        return builtins.__import__(name, scope, local, names, level)

    scope = {**function.__globals__, "__builtins__": {**vars(builtins), "__import__": load}}
    light = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )

    def ask(*args: Any, **kwargs: Any) -> Any:
        if _EXTENSIONS in sys.modules:
            return None
        try:
            return light(*args, **kwargs)
        except (ImportError, AttributeError, TypeError):
            return None

    return ask


class _Paths:
    """What torch.utils.cpp_extension says for a CPU."""

    def __init__(self) -> None:
        root = Path(torch.__file__).parent
        self.TORCH_LIB_PATH = str(root / "lib")
        self._headers = root / "include"

    def include_paths(self, device: str = "cpu", torch_include_dirs: Any = True) -> list[str]:
        inner = self._headers / "torch" / "csrc" / "api" / "include"
        return _on_cpu(device, [str(self._headers), str(inner)] if torch_include_dirs else [])

    def library_paths(
        self, device: str = "cpu", torch_include_dirs: Any = True, **_: Any
    ) -> list[str]:
        return _on_cpu(device, [self.TORCH_LIB_PATH] if torch_include_dirs else [])


def _on_cpu(device: str, paths: list[str]) -> list[str]:
    if device != "cpu":
        raise TypeError(f"the paths for {device} are not known here")
    return paths
