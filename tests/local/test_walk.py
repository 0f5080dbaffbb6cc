"""Walking a tree: all of it, in order, however deep, and no further than it goes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cachesvc.local.walk import below, remove_all, size_of


def test_each_folder_comes_before_what_it_holds(tmp_path: Path) -> None:
    """Sorted, links as what they are; down to a depth, if one is given."""
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "file").write_bytes(bytes(10))
    (tmp_path / "a").symlink_to("b")
    names = [os.path.relpath(path, tmp_path) for path, _ in below(tmp_path)]
    assert names == [".", "a", "b", "b/c", "b/c/file"]
    assert [os.path.relpath(path, tmp_path) for path, _ in below(tmp_path, 1)] == [".", "a", "b"]
    assert size_of(tmp_path) == 10


def test_what_is_not_there_is_passed_over(tmp_path: Path) -> None:
    """It may have been removed meanwhile, and it is gone."""
    assert list(below(tmp_path / "gone")) == []
    assert remove_all(tmp_path / "gone")


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    """What it leads to stays."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    assert remove_all(tmp_path / "tree")
    assert (tmp_path / "kept" / "file").exists()


def test_what_cannot_be_removed_is_told(tmp_path: Path) -> None:
    """The rest is removed all the same."""
    assert not remove_all("/proc/self/status")
    (tmp_path / "file").touch()
    assert remove_all(tmp_path)


def test_a_tree_deeper_than_python_recurses(tmp_path: Path) -> None:
    """Nobody needs one, and anybody can make one."""
    deep = str(tmp_path / "tree")
    for _ in range(sys.getrecursionlimit() + 10):
        os.mkdir(deep)
        deep += "/d"
    Path(deep).write_bytes(bytes(10))
    assert size_of(tmp_path / "tree") == 10
    assert remove_all(tmp_path / "tree")
