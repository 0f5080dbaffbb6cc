"""Precompiled C++ headers: not made where nothing is going to be compiled.

From torch 2.8 on Inductor preprocesses and compiles a header, outside its cache directory, before
it looks whether the kernel's library is there already. On a warm start that is a compiler run
for nothing: seconds on a fresh host, and a failure on one without a compiler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cachesvc.runtime.counters import cpp_builds
from cachesvc.runtime.watch import wrap

_MODULE = "torch._inductor.codecache"
_FUNCTION = "_precompile_header"


class _Spared:
    """Since which number of C++ builds headers are not made; None where they are."""

    since: int | None = None


def spare_headers() -> None:
    """Makes no header until this process builds a kernel after all; then headers help again.

    Leaving a header out changes neither the key nor the code of a library. Where this torch has no
    `_precompile_header`, or calls it in another way, nothing changes.
    """
    _Spared.since = cpp_builds()
    _hook()


@functools.cache
def _hook() -> None:
    import wrapt

    wrapt.register_post_import_hook(_watch, _MODULE)


def _watch(module: ModuleType) -> None:
    def precompile(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        return None if _Spared.since == cpp_builds() else wrapped(*args, **kwargs)

    if hasattr(module, _FUNCTION):
        wrap(module, _FUNCTION, precompile)
