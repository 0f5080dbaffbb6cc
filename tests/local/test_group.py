"""Relocation of Triton groups: out to bare names, back to absolute paths."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.errors import IntegrityError
from cachesvc.local.group import children, localise, points_into, relocate

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,40}", fullmatch=True)
FOLDERS = st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: Path("/", *parts))
OTHER = st.dictionaries(st.text().filter(lambda text: text != "child_paths"), st.integers())


def group(folder: Path, names: list[str], other: dict[str, Any] | None = None) -> bytes:
    paths = {name: str(folder / name) for name in names}
    return json.dumps({"child_paths": paths, **(other or {})}).encode()


@given(FOLDERS, FOLDERS, st.lists(NAMES, unique=True), OTHER)
def test_there_and_back(old: Path, new: Path, names: list[str], other: dict[str, Any]) -> None:
    """Relocated and localised, a group is what Triton would have written in the new folder."""
    packed = relocate(group(old, names, other), "g")
    assert localise(packed, new, "g") == group(new, names, other)


@given(FOLDERS, FOLDERS, st.lists(NAMES, unique=True), OTHER)
def test_the_place_leaves_no_trace(
    old: Path, new: Path, names: list[str], other: dict[str, Any]
) -> None:
    """Wherever a group lies, its relocated bytes are the same, so its digest is."""
    packed = relocate(group(old, names, other), "g")
    assert relocate(localise(packed, new, "g"), "g") == packed
    assert relocate(packed, "g") == packed
    assert children(packed, "g") == tuple(names)


@given(st.text().filter(lambda text: text != PurePosixPath(text).name or text in ("", "..")))
def test_a_child_outside_the_folder_is_refused(name: str) -> None:
    """Whoever wrote the pack cannot make Triton load a file from somewhere else."""
    hostile = json.dumps({"child_paths": {"k.cubin": name}}).encode()
    with pytest.raises(IntegrityError, match="outside its folder"):
        localise(hostile, Path("/cache/KEY"), "g")


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/etc/passwd", "../k", "a/../k", "k/"),
        *("a\\k", "k\0", "k\n", ".k", "k" * 300, "\ud800"),
    ],
)
def test_a_child_that_no_entry_can_have_is_refused(name: str) -> None:
    """A child is the plain name of a file beside it, and every such file is an entry."""
    hostile = json.dumps({"child_paths": {"k.cubin": name}}).encode()
    with pytest.raises(IntegrityError, match="outside its folder"):
        localise(hostile, Path("/cache/KEY"), "g")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b'"child_paths"',
        b"{}",
        b'{"child_paths": null}',
        b'{"child_paths": []}',
        b'{"child_paths": {"k": 1}}',
        b'{"child_paths": {"k": null}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"child_paths": {}} {"child_paths": {}}',
    ],
)
def test_what_is_no_group_is_refused(data: bytes) -> None:
    """Truncated, doubled, of another shape, or nested without end: always one kind of error."""
    for read in (relocate, children):
        with pytest.raises(IntegrityError, match="not a Triton group"):
            read(data, "g")
    with pytest.raises(IntegrityError, match="not a Triton group"):
        localise(data, Path("/cache"), "g")


def test_a_group_knows_whether_it_was_moved(tmp_path: Path) -> None:
    """Its paths lead to its folder, also under another name of it; not so after a copy."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    alias = tmp_path / "alias"
    alias.symlink_to(here)
    data = group(here, ["k.cubin", "k.json"])
    assert points_into(data, here, "g")
    assert points_into(data, alias, "g")
    assert not points_into(data, there, "g")
    assert not points_into(group(tmp_path / "gone", ["k.cubin"]), here, "g")
    assert not points_into(b'{"child_paths": {"k": "bad\\u0000/k"}}', here, "g")
    assert not points_into(b'{"child_paths": {"k": "k"}}', here, "g")
