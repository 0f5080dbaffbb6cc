"""Files that can be seen to be broken, and those that must never be taken for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cachesvc.local.broken import broken, broken_source, is_named_by_content
from cachesvc.local.damage import damaged_units
from cachesvc.local.places import Places

Compile = Callable[..., Path]


@pytest.mark.parametrize("suffix", [".so", ".cubin", ".hsaco"])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_native_code_that_is_cut_short(compile_library: Compile, suffix: str, part: float) -> None:
    """At any place: the tables at the end of the file are what its header promises."""
    data = compile_library("int f(void) { return 0; }").read_bytes()
    assert broken(f"inductor/ab/c{suffix}", data) is None
    assert broken(f"inductor/ab/c{suffix}", data[: int(len(data) * part)])


def test_a_library_whose_end_was_never_written(compile_library: Compile) -> None:
    """As a machine that lost its power leaves it: the right length, and zeros."""
    data = compile_library("int f(void) { return 0; }").read_bytes()
    assert broken("inductor/ab/c.so", data[:4096].ljust(len(data), b"\0"))
    assert broken("inductor/ab/c.so", bytes(len(data)))


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("triton/KEY/__grp__k.json", b'{"child_paths": {"k.cu'),
        ("triton/KEY/__grp__k.json", b""),
        ("triton/KEY/k.json", b'{"name": '),
        ("inductor/triton/1/KEY/__grp__k.json", b"{}{}"),
        ("inductor/ab/c.best_config", b'{"XBLOCK": 1'),
        ("inductor/cache/" + "a" * 64, b'{"cache": '),
        ("inductor/fxgraph/xy/KEY/one", b""),
        ("inductor/fxgraph/xy/KEY/one", b"\x80\x04\x95 cut"),
        ("inductor/aotautograd/KEY/one", bytes(100)),
        ("inductor/ab/c.py", b""),
        ("inductor/ab/c.py", b"import torch\n\0\0\0"),
        ("inductor/ab/c.main.cpp", b""),
    ],
)
def test_text_and_pickles_that_are_cut_short(path: str, data: bytes) -> None:
    """Each of these makes a compiler's reader raise, or is of no use to it."""
    assert broken(path, data)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("triton/KEY/__grp__k.json", json.dumps({"child_paths": {}}).encode()),
        ("triton/KEY/k.source", b""),
        ("triton/KEY/k.ttir", b"module {"),
        ("inductor/ab/c.json", b"not asked for"),
        ("inductor/fxgraph/xy/KEY/one", b"of another format than is known"),
        ("extra/vllm/file.so.txt", b""),
    ],
)
def test_what_cannot_be_judged_is_left_alone(path: str, data: bytes) -> None:
    """A kind of file that is not known, or is never read, is no reason to set anything aside."""
    assert broken(path, data) is None


def test_python_is_read_as_python() -> None:
    """A wrapper that is cut in the middle of a text is a SyntaxError at every start."""
    assert broken_source("inductor/ab/c.py", b"x = '''half")
    assert broken_source("inductor/ab/c.py", b"x = 1\n") is None
    assert broken("inductor/ab/c.py", b"x = '''half") is None


def test_names_that_stand_for_their_bytes() -> None:
    """A graph's file is named by its digest; a library is built again under the same name."""
    named = ["inductor/fxgraph/xy/K/one", "inductor/ab/c.py", "megacache/inductor/K/one"]
    assert all(map(is_named_by_content, named))
    again = ["inductor/ab/c.so", "triton/KEY/k.cubin", "inductor/ab/c.best_config"]
    assert not any(map(is_named_by_content, again))


def test_nothing_is_wrong_with_a_real_tree(h200_tree: Path) -> None:
    """The caches of an H200, 74 MB: every file is read and none is taken for a broken one."""
    folders = (("inductor", h200_tree / "inductor"), ("triton", h200_tree / "triton"))
    assert damaged_units(Places(h200_tree / "nowhere", folders)) == ()
