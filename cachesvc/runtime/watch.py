"""Hooks in the compiler: what it builds, what it finds built, and why it does not use its caches.

Each hook waits for its module to be imported, so that watching imports nothing. What a torch does
not have is named in `seen.unread`, and no start is called warm there; only hooks that make a
report richer are passed over in silence.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

_PROBE = "_chk_kernel"


class Seen:
    """What the hooks have seen in this process."""

    def __init__(self) -> None:
        self.builds = 0
        self.found = 0
        self.emitted: set[str] = set()
        self.files: set[str] = set()
        self.bypasses: Counter[tuple[str, str]] = Counter()
        self.unread: set[str] = set()
        self._lock = threading.Lock()

    def built(self) -> None:
        """The C++ compiler is being run."""
        with self._lock:
            self.builds += 1

    def placed(self, path: str, content: str) -> None:
        """A source file lies in the cache directory; its library may have been there before.

        What only tests the vector instructions is no kernel.
        """
        with self._lock:
            fresh = path not in self.files
            self.files.add(path)
            if fresh and path.endswith(".cpp") and _PROBE not in content:
                self.found += os.path.exists(f"{path.removesuffix('.cpp')}.so")

    def bypassed(self, layer: str, reason: str) -> None:
        """A cache will not be asked for a graph."""
        with self._lock:
            self.bypasses[layer, reason] += 1

    def unlock(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self._lock = threading.Lock()


seen = Seen()
os.register_at_fork(after_in_child=seen.unlock)


@functools.cache
def watch() -> None:
    """Watches the modules that build, place or look up compiled code."""
    import wrapt

    for module, hook in (
        ("torch._inductor.cpp_builder", _watch_cpp),
        ("torch._inductor.triton_bundler", _watch_bundler),
        ("torch._inductor.codecache", _watch_cache),
        ("torch._functorch._aot_autograd.autograd_cache", _watch_autograd_cache),
    ):
        wrapt.register_post_import_hook(hook, module)


def wrap(module: ModuleType, name: str, wrapper: Callable[..., Any]) -> None:
    """Puts a wrapper around a function of a module, by its dotted name there.

    wrapt loads where it is used: it brings asyncio along, which a pull has no use for.
    """
    import wrapt

    wrapt.wrap_function_wrapper(module, name, wrapper)


def _watch_cpp(module: ModuleType) -> None:
    """Counts `CppBuilder.build`; where it is missing, C++ builds are unread and nothing is warm."""

    def build(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        seen.built()
        return wrapped(*args, **kwargs)

    if hasattr(getattr(module, "CppBuilder", None), "build"):
        wrap(module, "CppBuilder.build", build)
    else:
        seen.unread.add("torch._inductor.cpp_builder.CppBuilder.build")


def _watch_bundler(module: ModuleType) -> None:
    """Notes the kernels that a cache entry brings along; where `TritonBundler.read_and_emit` is
    missing, they count as built, which can make a start look worse, never better."""

    def read_and_emit(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        bundle = args[0] if args else kwargs.get("bundle")
        artifacts = getattr(bundle, "kernel_artifacts", ())
        seen.emitted.update(str(getattr(item, "kernel_hash", "")) for item in artifacts)
        return wrapped(*args, **kwargs)

    if hasattr(getattr(module, "TritonBundler", None), "read_and_emit"):
        wrap(module, "TritonBundler.read_and_emit", read_and_emit)


def _watch_cache(module: ModuleType) -> None:
    """Notes the sources that Inductor places, each beside its library, and its bypasses.

    Where `write` is missing, a library that was found counts for nothing, so a start that used
    nothing else is called inert.
    """

    def write(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        seen.placed(str(result[1]), str(args[0] if args else kwargs.get("content", "")))
        return result

    if hasattr(module, "write"):
        wrap(module, "write", write)
    _watch_bypass(module, "BypassFxGraphCache", "Inductor")


def _watch_autograd_cache(module: ModuleType) -> None:
    _watch_bypass(module, "BypassAOTAutogradCache", "AOTAutograd")


def _watch_bypass(module: ModuleType, name: str, layer: str) -> None:
    """Notes the reason that a cache gives when it refuses a graph: the text of its exception.

    Where there is no such exception, bypasses are counted and have no reason.
    """

    def init(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        seen.bypassed(layer, str(args[0]) if args else "")
        return wrapped(*args, **kwargs)

    if hasattr(module, name):
        wrap(module, f"{name}.__init__", init)
