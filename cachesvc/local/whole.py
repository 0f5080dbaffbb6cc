"""Writing a file whole: readers see the old one or the new one, also after a crash."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cachesvc.core.errors import AccessDenied, TccacheError
from cachesvc.core.temporary import new_file, remove_left


def write_whole(file: Path, data: bytes) -> None:
    """Replaces `file` by one rename. Raises TccacheError, leaving no temporary, if it cannot.

    Temporaries that killed writers left in its folder are removed.
    """
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        remove_left(file.parent)
        with new_file(file.parent, readable_file) as (temporary, target):
            target.write(data)
            target.flush()
            os.fdatasync(target.fileno())
            os.replace(temporary, file)


def read_record(file: Path) -> bytes:
    """The bytes of a file of this library's records; empty if there is none, or none for us.

    Raises TccacheError if another try may read it: what is there must not be taken for nothing, and
    be replaced by less.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        if error.errno not in _PASSING:
            return b""
        raise TccacheError(
            f"cannot read {file}: {error.strerror}: {_CURES.get(error.errno, 'try again')}"
        ) from error


def readable_file(path: str, flags: int) -> int:
    """An opener for files that others may read as far as the user's umask lets them.

    An init container that pulls and the process that compiles are often different users.
    """
    return os.open(path, flags, 0o644)


_PASSING = {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
_CURES = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space in the quota",
    errno.EROFS: "mount it writable",
    errno.EMFILE: "let the process open more files",
}


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turns the operating system's errors into one sentence that says where and what to do."""
    try:
        yield
    except OSError as error:
        denied = isinstance(error, PermissionError)
        kind = AccessDenied if denied else TccacheError
        cure = "get the permission" if denied else _CURES.get(error.errno or 0, "look at the path")
        raise kind(
            f"cannot write to {error.filename or where}: {error.strerror or error}: {cure}, or"
            " choose another directory (TCCACHE_HOME for the live directory)"
        ) from error


def check_space(sizes: Mapping[Path, int]) -> None:
    """Raises TccacheError if a disk has no room for what is to go to the folders on it.

    The folders need not exist yet. What cannot be found out counts as room.
    """
    needed: Counter[int] = Counter()
    for folder, size in sizes.items():
        try:
            place = existing(folder)
            disk = os.stat(place).st_dev
            status = os.statvfs(place)
        except OSError:
            continue
        needed[disk] += size
        free = status.f_bavail * status.f_frsize
        # A file system that does not know its size says 0 for everything.
        if status.f_blocks and needed[disk] > free:
            raise TccacheError(
                f"{folder} is on a disk with {free / 1e6:.1f} MB left and"
                f" {needed[disk] / 1e6:.1f} MB are to go there: free space, or choose another"
                " directory (TCCACHE_HOME for the live directory)"
            )


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next((path for path in (folder, *folder.parents) if os.path.exists(path)), Path("/"))
