"""Inductor's worker processes: not started where nothing is going to be compiled.

Where Triton is installed Inductor starts a process, and from that as many as there are cores, as
soon as a graph comes: long before it looks whether the graph is in its cache. Each imports torch,
on the cores that the start needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cachesvc.runtime.watch import wrap

_WARM = "maybe_warm_pool"
_GENERATE = "fx_codegen_and_compile"


class _Spared:
    """Whether no worker is started; and what starts them, where this torch has that."""

    now: bool = False
    warm: Callable[[], Any] | None = None


def spare_pool() -> None:
    """Starts no worker until a graph is compiled after all; then they are started as ever.

    A Triton kernel that alone is missing is then compiled in this process. Where this torch starts
    its workers in another way, or nothing would tell that a graph is compiled, they are started.
    """
    _Spared.now = True
    _hook()


@functools.cache
def _hook() -> None:
    import wrapt

    wrapt.register_post_import_hook(_watch_workers, "torch._inductor.async_compile")
    wrapt.register_post_import_hook(_watch_graphs, "torch._inductor.compile_fx")


def _watch_workers(module: ModuleType) -> None:
    """`maybe_warm_pool`, `AsyncCompile.wakeup` and `AsyncCompile.use_process_pool`."""

    def leave(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        return None if _Spared.now else wrapped(*args, **kwargs)

    def is_used(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        return False if _Spared.now else wrapped(*args, **kwargs)

    workers = getattr(module, "AsyncCompile", None)
    if not hasattr(module, _WARM) or not hasattr(workers, "use_process_pool"):
        return
    wrap(module, _WARM, leave)
    _Spared.warm = getattr(module, _WARM)
    wrap(module, "AsyncCompile.use_process_pool", is_used)
    if hasattr(workers, "wakeup"):
        wrap(module, "AsyncCompile.wakeup", leave)


def _watch_graphs(module: ModuleType) -> None:
    """`fx_codegen_and_compile` runs where a graph was not in the cache."""

    def generate(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        _start()
        return wrapped(*args, **kwargs)

    if hasattr(module, _GENERATE):
        wrap(module, _GENERATE, generate)
    else:
        _start()


def _start() -> None:
    if _Spared.now:
        _Spared.now = False
        if _Spared.warm is not None:
            _Spared.warm()
