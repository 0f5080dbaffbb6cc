"""The moment before anything is compiled by Inductor in this process."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable

_COMPILER = "torch._inductor.compile_fx"


def is_compiler_loaded() -> bool:
    """Whether Inductor's compiler was imported, as it is by the first compile."""
    return _COMPILER in sys.modules


def before_compiler(work: Callable[[], None]) -> None:
    """Has a method called once the compiler is imported, so before its first compile; it must not
    raise. What it is bound to is not kept alive by this. Where this torch compiles elsewhere, it is
    never called."""
    import wrapt

    reference = weakref.WeakMethod(work)

    def begin(module: object) -> None:
        if (found := reference()) is not None:
            found()

    wrapt.register_post_import_hook(begin, _COMPILER)
