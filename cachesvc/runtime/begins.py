"""The moment before anything is compiled by Inductor in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

_COMPILER = "torch._inductor.compile_fx"


def is_compiler_loaded() -> bool:
    """Whether Inductor's compiler was imported, as it is by the first compile."""
    return _COMPILER in sys.modules


def before_compiler(work: Callable[[], None]) -> None:
    """Has work done once the compiler is imported, so before its first compile; work must not
    raise. Where this torch compiles elsewhere, it is never done."""
    import wrapt

    wrapt.register_post_import_hook(lambda module: work(), _COMPILER)
