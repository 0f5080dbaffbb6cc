"""Temporary files and folders that belong to the process which made them.

`tempfile.TemporaryDirectory` is removed at the end of any process that knows of it: a fork that
ends, such as a worker of a server, would take away what its parent is at work in. And what a
killed process leaves stays for ever. So each file and folder made here is held by a lock of the
kernel's, which ends with the last process that has it open: a fork holds it too. What nobody holds
was left behind, and the next process that makes one there removes it. Where a file system has no
such locks nothing is removed; it may be in use.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

MARK = ".tccache-scratch"
"""How the names end of what may be removed if nobody holds it."""

_TRIES = 100
_own: dict[str, int] = {}
_swept: set[str] = set()


def temporary_folder() -> Path | None:
    """The temporary directory of programs in Python; None where none can be written."""
    try:
        return Path(tempfile.gettempdir())
    except OSError:
        return None


def make_folder(prefix: str, parent: str | os.PathLike[str] | None = None) -> str:
    """A new folder, there until `remove_folder` or the end of this process.

    It lies in the temporary directory unless a parent is given.
    """
    above = os.fspath(parent or tempfile.gettempdir())
    for _ in range(_TRIES):
        folder = tempfile.mkdtemp(MARK, prefix, above)
        number = _opened(folder, os.O_RDONLY | os.O_DIRECTORY)
        if number is None:
            continue
        if _hold(number, folder):
            _own[folder] = number
            return folder
        os.close(number)
    raise _vanishing(above)


def remove_folder(folder: str) -> None:
    """Removes a folder that this process has made, and nobody else's."""
    number = _own.pop(folder, None)
    if number is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(number)


def holds() -> tuple[int, ...]:
    """What a child process is to inherit that may outlive this one and work in its folders."""
    return tuple(_own.values())


@contextmanager
def new_file(
    parent: Path, opener: Callable[[str, int], int] | None = None
) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file in a folder, to be written and then renamed; without a rename it is gone."""
    path, file = _make_file(parent, opener)
    try:
        with file:
            yield path, file
    finally:
        with suppress(OSError):
            path.unlink()


def _make_file(parent: Path, opener: Callable[[str, int], int] | None) -> tuple[Path, BinaryIO]:
    for _ in range(_TRIES):
        path = parent / f".{token_hex(8)}{MARK}"
        file = open(path, "xb", opener=opener)  # noqa: SIM115 - the caller closes it
        if _hold(file.fileno(), path):
            return path, file
        file.close()
    raise _vanishing(parent)


def remove_left(parent: str | os.PathLike[str]) -> None:
    """Removes the files and folders in a folder that were made here and that no process holds.

    Those of another user, and what cannot be removed, stay without a word.
    """
    with suppress(OSError), os.scandir(parent) as items:
        for item in items:
            if item.name.endswith(MARK):
                with suppress(OSError):
                    _remove_unless_held(item)


def remove_left_once(parent: str | os.PathLike[str]) -> None:
    """As `remove_left`, the first time in this process and for this folder; then nothing.

    For a folder that holds what others put there, which may be a lot.
    """
    if os.fspath(parent) not in _swept:
        _swept.add(os.fspath(parent))
        remove_left(parent)


def _remove_unless_held(item: os.DirEntry[str]) -> None:
    status = item.stat(follow_symlinks=False)
    is_folder = stat.S_ISDIR(status.st_mode)
    if status.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(status.st_mode)):
        return
    # Over a network an exclusive lock needs a file that is open for writing; a folder stays there.
    number = os.open(item.path, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_folder:
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            os.unlink(item.path)
    finally:
        os.close(number)


def _opened(path: str, flags: int) -> int | None:
    """A descriptor, or None if somebody has removed what was made just now."""
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return None


def _hold(number: int, path: str | os.PathLike[str]) -> bool:
    """Locks what was made at `path`; False if somebody took it for left and has removed it."""
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here, so nobody can have removed it
        return True
    return os.path.exists(path)


def _vanishing(parent: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EAGAIN, "what is made here keeps vanishing", os.fspath(parent))


def _remove_all() -> None:
    for folder in tuple(_own):
        remove_folder(folder)


# Registered here, before any work begins: what is registered later, such as the wait for a
# publication, comes first at the end.
atexit.register(_remove_all)
os.register_at_fork(after_in_child=_own.clear)
os.register_at_fork(after_in_child=_swept.clear)
