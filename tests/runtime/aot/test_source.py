"""Inductor's generated modules are reduced to what a call needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cachesvc.runtime.aot.source import NotReducible, reduce_module

TEXT = """
from ctypes import c_void_p
import math
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
async_compile = AsyncCompile()
empty = math.inf
unused = measured()
kernel = async_compile.cpp_pybinding(["float*"], "void kernel() {}")
other = async_compile.triton("other", "def other(): pass")
async_compile.wait(globals())
del async_compile

class Runner:
    def call(self, args):
        kernel(args[0], empty)
        return extern_kernels.mm(*args)

runner = Runner()
call = runner.call
recursively = runner.call

def benchmark_compiled_module(times=10):
    from torch._inductor.utils import print_performance
    return print_performance(call, times)
"""


def test_what_is_left_runs_with_kernels_from_elsewhere() -> None:
    """Nothing of the compiler is imported, and no kernel's source is there."""
    reduced = reduce_module(TEXT)
    asked: list[Any] = []
    scope: dict[str, Any] = {
        "kernel": lambda *given: asked.append(given),
        "extern_kernels": SimpleNamespace(mm=lambda a, b: a * b),
    }
    exec(reduced.code, scope)
    assert scope["call"]([2, 3]) == 6
    assert asked == [(2, float("inf"))]
    assert "void kernel" not in repr(reduced.code.co_consts)
    assert "benchmark_compiled_module" not in scope
    assert "unused" not in scope


def test_kernels_and_externs_are_told() -> None:
    """Only those that a call uses, each with how it was compiled."""
    reduced = reduce_module(TEXT)
    assert reduced.kernels == (("kernel", "cpp_pybinding"),)
    assert reduced.externs == ("mm",)


def test_a_call_that_needs_the_compiler_is_refused() -> None:
    """The reason names what it imports, be it within the call."""
    text = "def call(args):\n    from torch._inductor.utils import odd\n    return odd(args)\n"
    with pytest.raises(NotReducible, match=r"imports torch\._inductor\.utils"):
        reduce_module(text)
