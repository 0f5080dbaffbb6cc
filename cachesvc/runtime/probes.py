"""Libraries looked up before the compiler is asked for anything.

To look up the library of a C++ kernel Inductor first learns which vector instructions the compiler
and the CPU have: it compiles and loads test libraries, up to a dozen child processes, a second on
two cores. Here a library is looked up first under what the CPU has, and under a command line that
nobody ran. The name of a library is a hash of its source and its command line: what lies under it
is what would have been built. If nothing does, torch finds out everything by itself.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from cachesvc.runtime.commands import unrun, watch_commands
from cachesvc.runtime.compiler import has_compiler
from cachesvc.runtime.counters import cpp_builds
from cachesvc.runtime.instructions import are_probed, without_probe
from cachesvc.runtime.watch import watch, wrap


class _Spared:
    """Since which number of C++ builds nothing is asked; None where everything is."""

    since: int | None = None


class _Trial(threading.local):
    """The sources that a thread's look-up came to; None outside of one."""

    sources: list[str] | None = None


_trial = _Trial()


def spare_probes() -> None:
    """Asks the compiler nothing until this process misses a library; then everything, as ever.

    Neither keys nor code change. Where there is no compiler this does nothing: what a start then
    needs is another matter. Where this torch lacks what is wrapped, it probes.
    """
    _Spared.since = cpp_builds() if has_compiler() else None
    _hook()


@functools.cache
def _hook() -> None:
    import wrapt

    watch()  # first, so that what counts sources lies below
    watch_commands()
    wrapt.register_post_import_hook(_spare_instructions, "torch._inductor.cpu_vec_isa")
    wrapt.register_post_import_hook(_spare_library, "torch._inductor.codecache")


def _spare_instructions(module: ModuleType) -> None:
    """`valid_vec_isa_list` is answered within a look-up, on CPUs where torch probes."""

    def valid(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        if _trial.sources is None or not are_probed(module):
            return wrapped(*args, **kwargs)
        return without_probe(module)

    if hasattr(module, "valid_vec_isa_list"):
        wrap(module, "valid_vec_isa_list", valid)


def _spare_library(module: ModuleType) -> None:
    """`CppCodeCache.load_async` looks a library up first; `write` says where it looked."""

    def write(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        if _trial.sources is not None:
            _trial.sources.append(str(result[1]))
        return result

    def load(wrapped: Callable[..., Any], cls: Any, args: Any, kwargs: Any) -> Any:
        if _Spared.since is None or _Spared.since != cpp_builds():
            return wrapped(*args, **kwargs)
        known = set(cls.cache)
        # A guess may be something that this torch cannot take; what else is wrong shows below.
        with _looking_up() as sources, unrun(), suppress(Exception):
            # Nobody builds under a guess, so nobody builds ahead.
            found = wrapped(*args, **{**kwargs, "submit_fn": None})
            if any(map(_is_built, sources)):
                return found
        _Spared.since = None
        for key in set(cls.cache) - known:
            cls.cache.pop(key, None)  # it would build alone, and the rest after it
        return wrapped(*args, **kwargs)

    if hasattr(module, "write") and hasattr(getattr(module, "CppCodeCache", None), "cache"):
        wrap(module, "write", write)
        wrap(module, "CppCodeCache.load_async", load)


def _is_built(source: str) -> bool:
    return os.path.exists(f"{os.path.splitext(source)[0]}.so")


@contextmanager
def _looking_up() -> Iterator[list[str]]:
    sources: list[str] = []
    _trial.sources = sources
    try:
        yield sources
    finally:
        _trial.sources = None
