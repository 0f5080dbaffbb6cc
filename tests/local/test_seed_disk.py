"""Seeding onto disks that are full, read-only or closed: one sentence, and nothing half-written."""

from __future__ import annotations

import errno
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import TccacheError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.places import under
from cachesvc.local.seed import Seeder
from cachesvc.local.whole import check_space, existing, write_whole

ORIGIN = Origin("2026-01-01T00:00:00.000000Z", "any")
MIB = 1 << 20

Mount = Callable[..., Path]


def unit(number: int, size: int) -> Unit:
    key = f"inductor/ab/c{number}"
    return Unit(key, (Entry(f"{key}.so", size, digest_bytes(bytes(size))),), ORIGIN)


def stage(seeder: Seeder, units: list[Unit]) -> None:
    for item in units:
        for entry in item.entries:
            seeder.stage(entry, io.BytesIO(bytes(entry.size)))


def visible(root: Path) -> set[str]:
    """Files under their final names, and whatever a seeder forgot."""
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] != ".tccache"}


def remount_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def one_sentence(error: pytest.ExceptionInfo[TccacheError], reason: str) -> bool:
    text = str(error.value)
    return reason in text and "\n" not in text and "TCCACHE_HOME" in text


def test_a_disk_without_room_is_known_before_anything_is_brought(mount: Mount) -> None:
    """The plan says how much is missing; nothing was fetched or written for it."""
    places = under(mount("size=1m"))
    with Seeder(places) as seeder, pytest.raises(TccacheError, match="MB left") as error:
        seeder.plan([unit(1, 600_000), unit(2, 600_000)])
    assert one_sentence(error, "1.2 MB are to go there")
    assert visible(places.root) == set()


def test_a_disk_that_fills_up_is_survived(mount: Mount) -> None:
    """Something else took the room meanwhile: nothing is seen of what was staged, nor left."""
    places = under(mount("size=1m"))
    units = [unit(1, 600_000), unit(2, 600_000)]
    with pytest.raises(TccacheError) as error, Seeder(places) as seeder:
        stage(seeder, units)
    assert one_sentence(error, "No space left on device")
    assert visible(places.root) == set()
    assert list(places.root.rglob(".tccache-stage-*")) == []
    with Seeder(places) as seeder:
        stage(seeder, units[:1])
        seeder.commit(units[:1])
    assert visible(places.root) == {"inductor/ab/c1.so"}


def test_a_disk_without_inodes_is_survived(mount: Mount) -> None:
    """Room is left, but for no more files: as above."""
    places = under(mount("size=1m,nr_inodes=24"))
    units = [unit(number, 10) for number in range(30)]
    with pytest.raises(TccacheError) as error, Seeder(places) as seeder:
        stage(seeder, units)
    assert one_sentence(error, "No space left on device")
    assert visible(places.root) == set()
    assert list(places.root.rglob(".tccache-stage-*")) == []


@pytest.mark.parametrize("prepared", [False, True])
def test_a_read_only_disk_is_said(mount: Mount, prepared: bool) -> None:
    """Fresh, or seeded before it was made read-only as a model directory in an image is."""
    places = under(mount("size=1m"))
    if prepared:
        with Seeder(places):
            pass
    remount_read_only(places.root)
    with pytest.raises(TccacheError) as error:
        Seeder(places).__enter__()
    assert one_sentence(error, "Read-only file system")


def test_a_directory_of_another_user_is_said(
    open_folder: Path, unprivileged: Callable[..., Any]
) -> None:
    """No traceback, and the path that was refused."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o555)
    source = """
        try:
            seed.Seeder(places.under(Path(sys.argv[1]))).__enter__()
        except TccacheError as error:
            show(str(error))
    """
    text = unprivileged(source, closed)
    assert text.startswith(f"cannot write to {closed}/.tccache: Permission denied")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_no_error_of_staging_leaves_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Whatever the disk answers when a file is to be made."""
    places = under(tmp_path / "live")

    def refuse(path: str, flags: int) -> int:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr("cachesvc.local.seed.readable_file", refuse)
    with pytest.raises(TccacheError) as error, Seeder(places) as seeder:
        stage(seeder, [unit(1, 10)])
    assert one_sentence(error, os.strerror(code))
    assert visible(places.root) == set()


def test_an_error_half_way_through_a_commit_leaves_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is whole and stays; the next start brings the rest, and only that."""
    places = under(tmp_path / "live")
    units = [unit(number, 100) for number in range(4)]
    link = os.link

    def full_after_two(source: Path, target: Path) -> None:
        if len(visible(places.root / "inductor" / "ab")) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        link(source, target)

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full_after_two)
        patch.setattr(os, "rename", full)
        with Seeder(places) as seeder:
            stage(seeder, units)
            with pytest.raises(TccacheError) as error:
                seeder.commit(units)
    assert one_sentence(error, "No space left on device")
    assert visible(places.root) == {"inductor/ab/c0.so", "inductor/ab/c1.so"}
    with Seeder(places) as seeder:
        plan = seeder.plan(units)
        assert [item.key for item in plan.in_place] == ["inductor/ab/c0", "inductor/ab/c1"]
        stage(seeder, list(plan.missing))
        seeder.commit(plan.missing)
    assert len(visible(places.root)) == 4


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """filelock's answer where flock is not implemented becomes a sentence, too."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr("cachesvc.local.lock.FileLock.acquire", refuse)
    with pytest.raises(TccacheError, match="has no locks: use another live directory"):
        Seeder(under(tmp_path)).__enter__()


def test_room_is_counted_for_each_disk(mount: Mount) -> None:
    """Two directories on one disk add up; one on another disk does not count with them."""
    one, two = mount("size=1m"), mount("size=1m")
    check_space({one / "a": 700_000, two / "b": 700_000})
    with pytest.raises(TccacheError, match=f"{one}/b is on a disk with"):
        check_space({one / "a": 700_000, one / "b": 700_000})


def test_unknown_room_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems answer 0 for everything, some not at all."""
    zero = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: zero)
    check_space({tmp_path: MIB})

    def refuse(_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "statvfs", refuse)
    check_space({tmp_path: MIB})


def test_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    """Room is asked for before anything is made; the root always exists."""
    assert existing(tmp_path / "a" / "b") == tmp_path
    assert existing(tmp_path) == tmp_path
    assert existing(Path("/no-such-folder/at/all")) == Path("/")


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure before the rename leaves the old bytes, and no temporary beside them."""
    file = tmp_path / ("n" * 255)
    write_whole(file, b"old")
    assert file.read_bytes() == b"old"

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(TccacheError) as error:
            write_whole(file, b"new")
    assert one_sentence(error, "No space left on device")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
