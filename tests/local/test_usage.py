"""What was used and what was added is seen from outside, and nothing else is changed by looking."""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.temporary import MARK
from cachesvc.local.ledger import row_of
from cachesvc.local.receipt import receipt_of
from cachesvc.local.tree import Scan, scan
from cachesvc.local.usage import Watch, additions, listing, watch


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An Inductor directory of three units; one has two files."""
    root = tmp_path / "inductor"
    for name in ("ab/cone.py", "ab/cone.so", "ab/ctwo.py", "fxgraph/xy/fkey/entry"):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return root


def seen(tree: Path, section: str = "inductor") -> Scan:
    return scan([(section, tree)])


def watched(tree: Path, section: str = "inductor") -> Watch:
    return watch(seen(tree, section).units, [tree])


def test_a_unit_is_used_if_one_of_its_files_was_read(tree: Path) -> None:
    """By whole units, and again by the next watch, which forgets what was before."""
    first = watched(tree)
    assert first.used() == frozenset()
    (tree / "ab/cone.so").read_bytes()
    (tree / "fxgraph/xy/fkey/entry").read_bytes()
    assert first.used() == {"inductor/ab/cone", "inductor/fxgraph/xy/fkey"}
    assert watched(tree).used() == frozenset()


def test_a_library_that_is_loaded_was_used(tmp_path: Path) -> None:
    """A mapping is a reading: so do compiled kernels come into a process."""
    import _ctypes
    import ctypes

    library = tmp_path / "ab" / "ckernel.so"
    library.parent.mkdir()
    library.write_bytes(Path(_ctypes.__file__).read_bytes())
    watching = watched(tmp_path)
    ctypes.CDLL(str(library))
    assert watching.used() == {"inductor/ab/ckernel"}


def test_looking_is_not_using(tree: Path) -> None:
    """Statuses, names and a scan of the same directory read no file."""
    watching = watched(tree)
    for file in tree.rglob("*"):
        os.stat(file)
    assert listing([("inductor", tree)]) == {
        str(file.source) for unit in seen(tree).units for file in unit.files
    }
    assert watching.used() == frozenset()


def test_a_scan_reads_groups_and_that_is_no_use(tmp_path: Path) -> None:
    """A Triton kernel was used if a file beside its group was read."""
    kernel = tmp_path / "KEY"
    kernel.mkdir()
    (kernel / "k.cubin").write_bytes(b"code")
    paths = {"k.cubin": str(kernel / "k.cubin")}
    (kernel / "__grp__k.json").write_text(json.dumps({"child_paths": paths}))
    watching = watched(tmp_path, "triton")
    seen(tmp_path, "triton")
    assert watching.used() == frozenset()
    (kernel / "k.cubin").read_bytes()
    assert watching.used() == {"triton/KEY"}


def test_ledgers_and_receipts_stay_valid(tree: Path) -> None:
    """Size, modification time and inode are as they were."""
    files = sorted(file for file in tree.rglob("*") if file.is_file())
    rows, receipt = [row_of(file, "") for file in files], receipt_of({}, files)
    watched(tree)
    assert all(row.is_at(file) for row, file in zip(rows, files, strict=True))
    assert receipt.in_place()


def test_a_file_in_the_place_of_another_was_not_used(tree: Path) -> None:
    """A compiler that writes an entry anew has not used the old one; nor one that removed it."""
    watching = watched(tree)
    (tree / "new").write_text("anew")
    (tree / "new").rename(tree / "ab/ctwo.py")
    (tree / "fxgraph/xy/fkey/entry").unlink()
    assert watching.used() == frozenset()


def test_a_file_that_vanishes_before_the_watch(tree: Path) -> None:
    """Is no trouble: other processes clean up."""
    found = seen(tree)
    (tree / "ab/ctwo.py").unlink()
    assert watch(found.units, [tree]).used() == frozenset()


def without_access_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads as on a file system mounted noatime."""
    real: Callable[..., Any] = builtins.open
    monkeypatch.setattr(
        "cachesvc.local.usage.open",
        lambda file, mode: real(
            file, mode, opener=lambda path, flags: os.open(path, flags | os.O_NOATIME)
        ),
        raising=False,
    )


def foreign_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the owner of a file may set its access time."""
    real = os.utime

    def utime(path: Any, **times: Any) -> None:
        if not Path(path).name.endswith(MARK):
            raise PermissionError(1, "Operation not permitted", str(path))
        real(path, **times)

    monkeypatch.setattr(os, "utime", utime)


@pytest.mark.parametrize("trouble", [without_access_times, foreign_files])
def test_what_cannot_be_told(
    tree: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """None, never a number that is wrong."""
    trouble(monkeypatch)
    watching = watched(tree)
    (tree / "ab/cone.so").read_bytes()
    assert watching.used() is None


def test_a_folder_that_cannot_be_tried(tree: Path) -> None:
    """Where no file can be made, access times are not trusted."""
    assert watch(seen(tree).units, [tree, tree / "none"]).used() is None


def test_additions_are_new_units_and_grown_ones(tree: Path) -> None:
    """In whole units, as publications are; what went away is none."""
    before = seen(tree)
    assert additions(before, seen(tree)) == ()
    (tree / "ab/cone.best_config").write_text("grown")
    (tree / "ab/cthree.py").write_text("new")
    (tree / "ab/ctwo.py").unlink()
    added = additions(before, seen(tree))
    assert [(unit.key, len(unit.files)) for unit in added] == [
        ("inductor/ab/cone", 3),
        ("inductor/ab/cthree", 1),
    ]


def test_a_listing_passes_over_what_is_no_cache(tree: Path) -> None:
    """Locks and temporaries come and go without a cache changing; so may whole directories."""
    before = listing([("inductor", tree)])
    for name in ("locks/a.lock", "ab/.tmp", "tmpabcdefgh/x"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    assert listing([("inductor", tree)]) == before
    assert listing([("inductor", tree / "none")]) == frozenset()
