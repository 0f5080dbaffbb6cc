"""Cache trees are read into whole units; what cannot be used is passed over and counted."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.errors import UsageError
from cachesvc.core.paths import belongs, path_issue
from cachesvc.local.layout import is_passed_over
from cachesvc.local.megafile import Artifact
from cachesvc.local.tree import Scan, scan

KERNEL = ("k.ttir", "k.ptx", "k.cubin", "k.json")


def write(folder: Path, *names: str, data: bytes = b"x") -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def write_kernel(
    folder: Path,
    names: Iterable[str] = KERNEL,
    *,
    data: bytes = b"x",
    moved_from: Path | None = None,
) -> None:
    """A kernel as Triton leaves it: its files, then the group that lists them all."""
    names = tuple(names)
    write(folder, *names, data=data)
    paths = {name: str((moved_from or folder) / name) for name in names}
    write(folder, "__grp__k.json", data=json.dumps({"child_paths": paths}).encode())


def keys(found: Scan) -> list[str]:
    return [unit.key for unit in found.units]


def test_files_become_units_in_order(tmp_path: Path) -> None:
    """Units by key, files by path, sizes and statuses as on disk; unknown files are packed too."""
    write(tmp_path, "ab/cstem.py", "ab/cstem.so", "ab/cstem.best_config", "new/thing", data=b"four")
    write(tmp_path, "fxgraph/xy/fkey/one", "fxgraph/xy/fkey/two", "aotautograd/akey/one")
    found = scan([("inductor", tmp_path)])
    assert [(unit.key, [file.path for file in unit.files]) for unit in found.units] == [
        (
            "inductor/ab/cstem",
            [f"inductor/ab/cstem.{suffix}" for suffix in ("best_config", "py", "so")],
        ),
        ("inductor/aotautograd/akey", ["inductor/aotautograd/akey/one"]),
        (
            "inductor/fxgraph/xy/fkey",
            ["inductor/fxgraph/xy/fkey/one", "inductor/fxgraph/xy/fkey/two"],
        ),
        ("inductor/new/thing", ["inductor/new/thing"]),
    ]
    status = os.stat(tmp_path / "new/thing")
    (file,) = next(unit for unit in found.units if unit.key == "inductor/new/thing").files
    assert (file.size, file.mtime_ns, file.inode) == (4, status.st_mtime_ns, status.st_ino)
    assert (found.files, found.size) == (7, 4 * 4 + 3)
    assert found.skipped == ()


def test_a_group_is_packed_with_bare_names(tmp_path: Path) -> None:
    """The one file whose bytes are not those on disk; its size is that of what is packed."""
    write_kernel(tmp_path / "KEY")
    (unit,) = scan([("triton", tmp_path)]).units
    group = next(file for file in unit.files if file.path == "triton/KEY/__grp__k.json")
    assert group.content is not None
    assert json.loads(group.content) == {"child_paths": {name: name for name in KERNEL}}
    assert group.size == len(group.content) != os.path.getsize(group.source)
    assert all(file.content is None for file in unit.files if file is not group)


def test_temporaries_are_counted_not_packed(tmp_path: Path) -> None:
    """Half-written files of running compilers, their locks, and this library's own records."""
    write(tmp_path, "ab/c.py", ".17.140.tmp", "ab/c.lock", "locks/c.lock", "locks/d.lock")
    write(tmp_path, ".tccache/ledger.json", "precompiled_headers/c.h.gch", "tmpab12cd34/ab/c.py")
    write(tmp_path, "triton/0/KEY/tmp.pid_1_2/k.cubin")
    found = scan([("inductor", tmp_path)])
    assert keys(found) == ["inductor/ab/c"]
    assert found.skipped == (("temporary", 7),)


def test_links_and_special_files_are_passed_over(tmp_path: Path) -> None:
    """Nothing outside the tree comes in through a link, and a fifo does not stop the reader.

    Not even where its name says that it is a group, which is read while the tree is.
    """
    secret = tmp_path / "secret"
    write(secret, "key", "folder/key")
    tree = tmp_path / "tree"
    write_kernel(tree / "KEY")
    (tree / "link").symlink_to(secret / "key")
    (tree / "folder").symlink_to(secret / "folder")
    (tree / "dangling").symlink_to(tree / "nowhere")
    (tree / "KEY" / "__grp__link.json").symlink_to(tree / "KEY" / "__grp__k.json")
    os.mkfifo(tree / "KEY" / "__grp__fifo.json")
    with socket.socket(socket.AF_UNIX) as server:
        cwd = os.getcwd()
        os.chdir(tree)
        server.bind("socket")
        os.chdir(cwd)
        found = scan([("triton", tree)])
    assert keys(found) == ["triton/KEY"]
    assert found.files == len(KERNEL) + 1
    assert found.skipped == (("link or special file", 6),)


@pytest.mark.parametrize("name", [b"ab/c\xff.py", b"ab/c\n.py", b"ab/c\\d.py", b"ab/c\x7f.py"])
def test_names_that_cannot_be_stored_are_passed_over(tmp_path: Path, name: bytes) -> None:
    """No entry may have them, so one strange file does not stop the push of the others."""
    write(tmp_path, "ab/good.py")
    with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
        pass
    found = scan([("inductor", tmp_path)])
    assert keys(found) == ["inductor/ab/good"]
    assert found.skipped == (("name that cannot be stored", 1),)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b'{"child_paths": {"k.cubin": "/x/k.cub',
        b'{"child_paths": {}}',
        b'{"child_paths": {"k.cubin": "/x/k.cubin", "k.gone": "/x/k.gone"}}',
        b"[]",
    ],
)
def test_a_kernel_with_a_broken_group_is_left_out(tmp_path: Path, broken: bytes) -> None:
    """Truncated, empty, or listing a file that is not there: the whole kernel stays behind."""
    write_kernel(tmp_path / "WHOLE")
    write_kernel(tmp_path / "BROKEN")
    write(tmp_path / "BROKEN", "__grp__k.json", data=broken)
    found = scan([("triton", tmp_path)])
    assert keys(found) == ["triton/WHOLE"]
    assert found.skipped == (("part of a broken kernel", len(KERNEL) + 1),)


def test_a_kernel_without_a_group_is_left_out(tmp_path: Path) -> None:
    """Triton writes the group last, so without it the writer was killed; libraries have none."""
    write(tmp_path, "HALF/k.ttir", "HALF/k.cubin", "LAUNCHER/__triton_launcher.so")
    found = scan([("triton", tmp_path)])
    assert keys(found) == ["triton/LAUNCHER"]
    assert found.skipped == (("part of a broken kernel", 2),)


def test_one_broken_group_of_two_breaks_the_kernel(tmp_path: Path) -> None:
    """A unit is used whole, so it is published whole or not at all."""
    write_kernel(tmp_path / "KEY")
    write(tmp_path / "KEY", "__grp__other.json", data=b'{"child_paths": {"o": "/x/o"}}')
    assert scan([("triton", tmp_path)]).units == ()


def test_files_that_vanish_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that runs meanwhile replaces files and folders; the reader goes on."""
    write(tmp_path, "ab/a.py", "ab/b.py", "ab/c.py", "cd/d.py", "ef/e.py")
    write_kernel(tmp_path / "triton" / "0" / "KEY")

    def meanwhile(section: str, parts: tuple[str, ...]) -> bool:
        """Looks at a name that was listed, after another process took the file away."""
        if parts == ("cd",):
            shutil.rmtree(tmp_path / "cd")
        if parts[-1] in ("b.py", "__grp__k.json"):
            tmp_path.joinpath(*parts).unlink()
        return is_passed_over(section, parts)

    monkeypatch.setattr("cachesvc.local.tree.is_passed_over", meanwhile)
    found = scan([("inductor", tmp_path)])
    assert keys(found) == ["inductor/ab/a", "inductor/ab/c", "inductor/ef/e"]
    assert dict(found.skipped) == {"vanished": 3, "part of a broken kernel": len(KERNEL)}


def test_what_cannot_be_read_is_left_out_with_its_unit(
    open_folder: Path, unprivileged: Callable[..., Any]
) -> None:
    """A file or folder of another user: the rest of the tree is still published."""
    write(open_folder, "ab/secret.py", "ab/secret.so", "ab/open.py", "cd/hidden.py")
    write_kernel(open_folder / "triton" / "0" / "KEY")
    for name in ("ab/secret.so", "cd", "triton/0/KEY/__grp__k.json"):
        (open_folder / name).chmod(0)
    source = """
        found = tree.scan([("inductor", Path(sys.argv[1]))])
        show([[unit.key for unit in found.units], dict(found.skipped)])
    """
    assert unprivileged(source, open_folder) == [
        ["inductor/ab/open"],
        {"unreadable": 4, "part of a broken kernel": len(KERNEL)},
    ]


def test_a_kernel_under_two_devices_is_taken_once(tmp_path: Path) -> None:
    """Rank 0 and rank 1 built the same; one of the copies is published, not a mixture."""
    write_kernel(tmp_path / "triton" / "0" / "KEY", data=b"zero")
    write_kernel(tmp_path / "triton" / "1" / "KEY", data=b"one")
    (unit,) = scan([("inductor", tmp_path)]).units
    assert unit.key == "triton/KEY"
    assert {file.source.parent.parent.name for file in unit.files} == {"0"}


def test_of_two_copies_the_whole_one_is_taken(tmp_path: Path) -> None:
    """A half on one device, a whole on the other: files of both would make a kernel of neither."""
    write_kernel(tmp_path / "triton" / "0" / "KEY", data=b"zero")
    (tmp_path / "triton" / "0" / "KEY" / "k.cubin").unlink()
    write_kernel(tmp_path / "triton" / "1" / "KEY", data=b"one")
    found = scan([("inductor", tmp_path)])
    assert {file.source.parent.parent.name for file in found.units[0].files} == {"1"}
    assert found.skipped == (("part of a broken kernel", len(KERNEL)),)


def test_of_two_copies_the_larger_is_taken(tmp_path: Path) -> None:
    """One that holds all files of the other and more replaces it, whichever comes first."""
    write_kernel(tmp_path / "triton" / "0" / "KEY")
    write_kernel(tmp_path / "triton" / "1" / "KEY", (*KERNEL, "k.llir"))
    (unit,) = scan([("inductor", tmp_path)]).units
    assert len(unit.files) == len(KERNEL) + 2
    assert {file.source.parent.parent.name for file in unit.files} == {"1"}


@pytest.mark.parametrize("nested", ["triton", "triton/0", "elsewhere/kernels"])
def test_a_tree_in_a_tree_is_read_once(tmp_path: Path, nested: str) -> None:
    """TRITON_CACHE_DIR inside Inductor's directory: its kernels are Triton's, and come once."""
    write(tmp_path, "ab/c.py")
    write_kernel(tmp_path / nested / "KEY")
    write(tmp_path / nested, "KEY/.hidden")
    found = scan([("inductor", tmp_path), ("triton", tmp_path / nested)])
    assert keys(found) == ["inductor/ab/c", "triton/KEY"]
    assert found.skipped == (("temporary", 1),)


def test_tritons_directory_without_device_is_found(tmp_path: Path) -> None:
    """Under `fresh_cache` the kernels lie in inductor/triton/KEY: still kernels, relocated."""
    write_kernel(tmp_path / "triton" / "KEY")
    (unit,) = scan([("inductor", tmp_path)]).units
    assert unit.key == "triton/KEY"
    assert sum(file.content is not None for file in unit.files) == 1


def test_artifacts_of_a_mega_cache_are_units(tmp_path: Path) -> None:
    """One unit for each key; a key with two sets of guards is one unit of two entries."""
    artifacts = [
        Artifact("inductor", "fkey", b"one"),
        Artifact("inductor", "fkey", b"two"),
        Artifact("autotune", "ab/c.best_config", b"{}"),
    ]
    found = scan([], artifacts)
    by_key = {unit.key: unit for unit in found.units}
    assert len(by_key) == 2
    assert len(by_key["megacache/inductor/fkey"].files) == 2
    for unit in found.units:
        for file in unit.files:
            assert file.content is not None
            assert file.size == len(file.content)
            assert Artifact.from_bytes(file.content, file.path) in artifacts


def test_a_directory_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """A wrong path is the caller's, and is said before anything is published."""
    write(tmp_path, "file")
    for wrong in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(UsageError, match="not a directory"):
            scan([("inductor", wrong)])


def test_a_real_tree_is_read_whole(h200_tree: Path) -> None:
    """All files of an H200's tree are in units, under valid paths, and nothing is skipped."""
    trees = [(name, h200_tree / name) for name in ("inductor", "triton")]
    found = scan(trees)
    on_disk = sum(path.is_file() for _, root in trees for path in root.rglob("*"))
    assert found.skipped == ()
    assert found.files == on_disk == 809
    assert sum(unit.key.startswith("triton/") for unit in found.units) == 92
    assert sum(unit.key.startswith("inductor/fxgraph/") for unit in found.units) == 4
    assert sum(unit.key.startswith("inductor/aotautograd/") for unit in found.units) == 3
    for unit in found.units:
        for file in unit.files:
            assert path_issue(file.path) is None
            assert belongs(file.path, unit.key)
