"""Entry paths: nothing that could name a place outside the directory that it goes to."""

from __future__ import annotations

import os.path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.paths import SECTIONS, belongs, folders_of, path_issue

GOOD = [
    "inductor/fxgraph/ab/fabc/n0",
    "triton/2LZ4J3/__grp__kernel.json",
    "megacache/inductor/~0123/artifact",
    "aot/f/object",
    "extra/vllm/a b (1).txt",
    "inductor/ab/größe.py",
    "inductor/ab/" + "x" * 255,
    "inductor/" + "a/" * 40 + "b",
]
BAD = {
    "": "does not begin with a section",
    "inductor": "names no file below its section",
    "inductor/": "has an empty part",
    "inductor//a": "has an empty part",
    "inductor/a/": "has an empty part",
    "/inductor/a": "does not begin with a section",
    "//inductor/a": "does not begin with a section",
    "other/a": "does not begin with a section",
    "Inductor/a": "does not begin with a section",
    "inductor2/a": "does not begin with a section",
    "../inductor/a": "does not begin with a section",
    "inductor/..": "starts with a dot",
    "inductor/../../etc/passwd": "starts with a dot",
    "inductor/a/..": "starts with a dot",
    "inductor/./a": "starts with a dot",
    "inductor/.tccache/ledger": "starts with a dot",
    "triton/K/.tmp": "starts with a dot",
    "inductor\\a": "a control character or a backslash",
    "inductor/..\\..\\a": "a control character or a backslash",
    "inductor/a\0": "a control character or a backslash",
    "inductor/a\n": "a control character or a backslash",
    "inductor/\x1b[2J": "a control character or a backslash",
    "inductor/a\x7f": "a control character or a backslash",
    "inductor/" + "x" * 256: "a part longer than 255 bytes",
    "inductor/" + "é" * 128: "a part longer than 255 bytes",
    "inductor/" + "a/" * 600 + "b": "longer than 1024 bytes",
    "inductor/\ud800": "is not valid Unicode",
}


@pytest.mark.parametrize("path", GOOD)
def test_good_paths(path: str) -> None:
    """What compilers and users really name their files is taken."""
    assert path_issue(path) is None


@pytest.mark.parametrize(("path", "issue"), BAD.items(), ids=lambda text: ascii(text)[:40])
def test_bad_paths(path: str, issue: str) -> None:
    """Each way out of the directory, or into a hidden file, is refused with its reason."""
    assert issue in (path_issue(path) or "")


PARTS = st.sampled_from([*SECTIONS, "", ".", "..", "a", "b.c", "\\", "\0", "x" * 255, "é" * 127])


@given(st.lists(PARTS, max_size=6).map("/".join) | st.text(max_size=30))
def test_no_accepted_path_leaves_its_folder(path: str) -> None:
    """Whatever is accepted stays, joined and normalised, inside the section's directory."""
    if path_issue(path) is None:
        section, _, rest = path.partition("/")
        place = os.path.normpath(f"/live/{section}/{rest}")
        assert place == f"/live/{path}"
        assert all(0 < len(part.encode()) <= 255 for part in path.split("/"))


@pytest.mark.parametrize(
    ("path", "unit", "inside"),
    [
        ("inductor/ab/cxyz.py", "inductor/ab/cxyz", True),
        ("inductor/ab/cxyz.main.so", "inductor/ab/cxyz", True),
        ("triton/KEY/file", "triton/KEY", True),
        ("extra/a/b", "extra/a/b", True),
        ("triton/KEY2/file", "triton/KEY", False),
        ("triton/KE", "triton/KEY", False),
        ("triton/KEY/file", "", False),
    ],
)
def test_belongs(path: str, unit: str, inside: bool) -> None:
    """A unit holds its key, what lies below it, and its key with a suffix; no longer name."""
    assert belongs(path, unit) is inside


def test_folders_of() -> None:
    """Every folder above a path is named, the path itself is not."""
    assert folders_of(["a/b/c", "a/d"]) == {"a", "a/b"}
    assert folders_of([]) == set()
