"""Precompiled headers are spared exactly as long as nothing has to be built."""

from __future__ import annotations

import subprocess
import sys

FAKE_TORCH = """
import sys
from types import ModuleType

made = []

class CppBuilder:
    def build(self):
        made.append("library")

def _precompile_header(name, **options):
    made.append("header")
    return f"{name}.gch"

builder, cache = ModuleType("torch._inductor.cpp_builder"), ModuleType("torch._inductor.codecache")
builder.CppBuilder, cache._precompile_header = CppBuilder, _precompile_header
for module in (builder, cache):
    sys.modules[module.__name__] = module

from cachesvc.runtime.counters import Meter
from cachesvc.runtime.headers import spare_headers

def kernel():
    header = cache._precompile_header("torch.h", flags="-O3")
    CppBuilder().build()
    return header
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", FAKE_TORCH + code], check=True)


def test_headers_are_made_unless_they_are_spared() -> None:
    """Importing and counting changes nothing."""
    run("Meter(None)\nassert kernel() == 'torch.h.gch' and made == ['header', 'library']")


def test_headers_come_back_when_something_is_built() -> None:
    """The first kernel that is missing is built without a header, all after it with one."""
    run(
        "Meter(None)\n"
        "spare_headers()\n"
        "assert [kernel(), kernel(), kernel()] == [None, 'torch.h.gch', 'torch.h.gch']\n"
        "assert made == ['library', 'header', 'library', 'header', 'library']"
    )


def test_headers_can_be_spared_again() -> None:
    """A second warm start in the process spares them anew, whatever was built before."""
    run(
        "Meter(None)\n"
        "spare_headers()\n"
        "kernel()\n"
        "spare_headers()\n"
        "assert [kernel(), kernel()] == [None, 'torch.h.gch']"
    )


def test_a_torch_without_headers_is_left_alone() -> None:
    """Older versions have no such function; nothing is put there and nothing raises."""
    run(
        "del cache._precompile_header\n"
        "spare_headers()\n"
        "assert not hasattr(cache, '_precompile_header')"
    )
