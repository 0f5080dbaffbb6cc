"""Without a C++ compiler: what torch is told, and what is left alone in a torch that lacks it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cachesvc.runtime.compiler import has_compiler, wants_compiler

CONFIG = "torch._inductor.config"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that holds nothing, no CXX, and a process that knows nothing of Inductor."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "TORCH_INDUCTOR_INSTALL_GXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, CONFIG, raising=False)
    return tmp_path


def put(folder: Path, name: str, mode: int = 0o755) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(mode)


def set_compilers(monkeypatch: pytest.MonkeyPatch, cxx: object) -> None:
    config = ModuleType(CONFIG)
    config.cpp = SimpleNamespace(cxx=cxx)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, CONFIG, config)


def test_the_default_is_looked_for(tools: Path) -> None:
    """g++ and nothing else: clang++ and c++ are not what torch looks for."""
    for name in ("clang++", "c++", "gcc"):
        put(tools, name)
    assert not has_compiler()
    put(tools, "g++", mode=0o644)
    assert not has_compiler()
    put(tools, "g++")
    assert has_compiler()


def test_cxx_is_looked_for(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name or by path, and instead of the default; flags behind it make it a wrong name, as
    they do for torch."""
    put(tools, "g++")
    put(tools, "clang++")
    for value, found in (
        ("clang++", True),
        (str(tools / "clang++"), True),
        ("icpx", False),
        ("g++ -m64", False),
    ):
        monkeypatch.setenv("CXX", value)
        assert has_compiler() is found


@pytest.mark.parametrize(
    ("cxx", "found"),
    [
        ((None, "g++-12"), False),
        ((None, "g++-12", "g++"), True),
        (["g++"], True),
        ("g++", True),
        ((None,), False),
    ],
)
def test_torchs_setting_counts(
    tools: Path, monkeypatch: pytest.MonkeyPatch, cxx: object, found: bool
) -> None:
    """Once Inductor is there, its setting counts, in each form that torch takes."""
    put(tools, "g++")
    set_compilers(monkeypatch, cxx)
    assert has_compiler() is found


def test_a_compiler_that_torch_would_install(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked torch to fetch one gets it: torch is not kept from doing so."""
    monkeypatch.setenv("TORCH_INDUCTOR_INSTALL_GXX", "1")
    assert has_compiler()
    set_compilers(monkeypatch, ("g++",))
    assert not has_compiler()


class InvalidCxxCompiler(RuntimeError):
    """As torch's, by its name."""


class Wrapping(Exception):
    """As torch's errors that carry another one along."""

    def __init__(self, inner: Exception) -> None:
        super().__init__("a graph failed")
        self.inner_exception = inner


def chained(first: Exception, second: Exception, *, hidden: bool) -> Exception:
    try:
        try:
            raise first
        except Exception as error:
            raise second from (None if hidden else error)
    except Exception as error:
        return error


def circular() -> Exception:
    error = ValueError("of itself")
    error.__cause__ = error
    return error


def wanting() -> Iterable[Exception]:
    missing = InvalidCxxCompiler("No working C++ compiler found")
    yield missing
    yield Wrapping(Wrapping(missing))
    yield chained(missing, ValueError("x"), hidden=False)
    yield chained(missing, ValueError("x"), hidden=True)
    yield RuntimeError("LoweringException: InvalidCxxCompiler: No working C++ compiler found")
    yield RuntimeError("Failed to find C compiler. Please specify via CC environment variable")


@pytest.mark.parametrize("error", list(wanting()), ids=repr)
def test_the_want_of_a_compiler_is_recognised(error: Exception) -> None:
    """In whatever torch has wrapped it."""
    assert wants_compiler(error)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), Wrapping(OSError("full")), circular(), RuntimeError("C++ compile error")],
    ids=repr,
)
def test_other_errors_are_not(error: Exception) -> None:
    """A compiler that fails is another matter; and errors that hold each other end."""
    assert not wants_compiler(error)


FAKE_TORCH = """
import os, sys, tempfile
from types import ModuleType

class Isa:
    _is_amx_fp16_supported = False
    _is_avx512_bf16_supported = False
    def __init__(self, name, width, *optional):
        self.name, self.width = name, width
        for flag in optional:
            setattr(self, flag, True)
    def __bool__(self): return self.width > 0
    def bit_width(self): return self.width
    def key(self):
        bf16, fp16 = self._is_avx512_bf16_supported, self._is_amx_fp16_supported
        return self.name + "-bf16" * bf16 + "-fp16" * fp16

AMX = Isa("amx", 512, "_is_amx_fp16_supported", "_is_avx512_bf16_supported")
AVX2, NONE = Isa("avx2", 256), Isa("none", 0)
folder = tempfile.mkdtemp()
tried, built = [], []

def module(name, **members):
    sys.modules[name] = found = ModuleType(name)
    vars(found).update(members)
    return found

class VecISA:
    def check_build(self, code, override_arch_flags=None):
        raise RuntimeError("probed")

class InvalidCxxCompiler(RuntimeError):
    pass

class CppBuilder:
    def build(self): built.append("library")

def cpp_compiler_search(search): raise InvalidCxxCompiler

def write(content, extension, extra=""):
    tried.append(extra)
    return extra, os.path.join(folder, f"{extra}.{extension}")

def pick_vec_isa(): return cache.natural

class CppCodeCache:
    @classmethod
    def load_async(cls, source, submit_fn=None):
        if submit_fn: submit_fn()
        key, _ = cache.write(source, "main.cpp", extra=cache.pick_vec_isa().key())
        return lambda: key

class Sub(CppCodeCache):
    pass

exc = module("torch._inductor.exc", InvalidCxxCompiler=InvalidCxxCompiler)
config = module("torch._inductor.config")
builder = module(
    "torch._inductor.cpp_builder", CppBuilder=CppBuilder, cpp_compiler_search=cpp_compiler_search
)
isa = module(
    "torch._inductor.cpu_vec_isa",
    VecISA=VecISA, valid_vec_isa_list=lambda: [AMX, AVX2], invalid_vec_isa=NONE,
)
cache = module(
    "torch._inductor.codecache",
    write=write, pick_vec_isa=pick_vec_isa, CppCodeCache=CppCodeCache, natural=AMX,
    _precompile_header=lambda *args: "header",
)

class OutputGraph:
    def call_user_compiler(self, gm): raise InvalidCxxCompiler

graph = module("torch._dynamo.output_graph", OutputGraph=OutputGraph)

def library(key):
    open(os.path.join(folder, f"{key}.main.so"), "w").close()

from cachesvc.runtime import compiler
from cachesvc.runtime.compiler import do_without_compiler, eager_graphs
"""


def run(code: str) -> None:
    environment = {**os.environ, "PATH": "/nonexistent"}
    environment.pop("CXX", None)
    subprocess.run([sys.executable, "-c", FAKE_TORCH + code], check=True, env=environment)


def test_what_torch_is_told() -> None:
    """The default's name and yes to every probe; a header is not made, and a build is refused."""
    run(
        "assert do_without_compiler()\n"
        "assert builder.cpp_compiler_search((None, 'g++')) == 'g++'\n"
        "assert VecISA().check_build('code') and VecISA().check_build('code', 'flags')\n"
        "assert cache._precompile_header('torch.h') is None\n"
        "try:\n"
        "    CppBuilder().build()\n"
        "except InvalidCxxCompiler:\n"
        "    from cachesvc.runtime.watch import seen\n"
        "    assert (built, seen.builds) == ([], 0)\n"
        "else:\n"
        "    raise AssertionError"
    )


def test_a_compiler_that_comes_later() -> None:
    """With the next start torch is itself again."""
    run(
        "do_without_compiler()\n"
        "compiler.has_compiler = lambda: True\n"
        "assert not do_without_compiler()\n"
        "CppBuilder().build()\n"
        "assert built == ['library']\n"
        "assert cache._precompile_header('torch.h') == 'header'\n"
        "cache.CppCodeCache.load_async('source')\n"
        "assert tried == ['amx-bf16-fp16']"
    )


def test_the_library_that_lies_there_is_found() -> None:
    """What torch picks first, then what other compilers and CPUs would have been content with,
    never more than torch picks; what served once comes first, and nothing is built ahead."""
    run(
        "do_without_compiler()\n"
        "library('amx-bf16')\n"
        "ahead = lambda: built.append('ahead')\n"
        "load = lambda: Sub.load_async('source', submit_fn=ahead)()\n"
        "assert load() == 'amx-bf16' and tried[0] == 'amx-bf16-fp16'\n"
        "tried.clear()\n"
        "assert load() == 'amx-bf16' and tried == ['amx-bf16']\n"
        "os.unlink(os.path.join(folder, 'amx-bf16.main.so'))\n"
        "assert load() == 'amx-bf16-fp16'\n"
        "assert set(tried) == {'amx-bf16-fp16', 'amx-bf16', 'amx-fp16', 'amx', 'avx2', 'none'}\n"
        "library('none')\n"
        "assert load() == 'none'\n"
        "assert built == []"
    )


def test_no_wider_than_torch_picks() -> None:
    """Who narrows the instructions by hand is obeyed."""
    run(
        "do_without_compiler()\n"
        "library('amx')\n"
        "cache.natural = AVX2\n"
        "assert cache.CppCodeCache.load_async('source')() == 'avx2'\n"
        "assert 'amx' not in tried"
    )


@pytest.mark.parametrize(
    "missing",
    [
        "del builder.cpp_compiler_search",
        "del CppBuilder.build",
        "del VecISA.check_build",
        "del cache._precompile_header",
        "del cache.pick_vec_isa",
        "del cache.CppCodeCache",
        "del OutputGraph.call_user_compiler",
    ],
)
def test_a_torch_that_lacks_something(missing: str) -> None:
    """Nothing is put there and nothing raises; all else works on."""
    run(
        f"{missing}\n"
        "assert do_without_compiler()\n"
        "if hasattr(OutputGraph, 'call_user_compiler'):\n"
        "    class Graph:\n"
        "        forward = 'eager'\n"
        "    assert OutputGraph().call_user_compiler(Graph) == 'eager'\n"
        "    assert OutputGraph().call_user_compiler(gm=Graph) == 'eager'\n"
        "    assert eager_graphs() == 2"
    )
