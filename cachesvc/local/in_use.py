"""A process's hold on its live directory: while one lives that has it, the directory stays.

The hold is a shared lock of the kernel's on a file among the records. It ends with the last process
that has the file open: forks have, and programs that were started to inherit it. When the
directory was taken hold of last is the file's time. Where a file system has no such locks nobody
holds anything, and nobody removes anything.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cachesvc.local.places import Places
from cachesvc.local.privacy import is_shared, make_folders

_NAME = "in-use"
_TRIES = 100
_BETWEEN_TRIES_S = 0.01

_held: dict[str, int] = {}


def file_of(places: Places) -> Path:
    """The file that is locked, and whose time says when."""
    return places.records / _NAME


def hold(places: Places, *, inherited: bool = False) -> None:
    """Holds a live directory until this process ends.

    One of our own that is being removed at this moment is made anew; in one that the user set, the
    records must be there. With `inherited`, programs that this process starts hold it too. Calling
    it again is harmless. Never raises: without a hold the directory may be removed one day.
    """
    file = file_of(places)
    with suppress(OSError):
        number = _held.get(str(file))
        if number is None or not _is_at(number, file):
            number = _awaited(places, file)
            _let_go(file)  # of one that was removed
        if number is not None:
            _held[str(file)] = number
            os.set_inheritable(number, inherited or os.get_inheritable(number))
            os.utime(number)


def _let_go(file: Path) -> None:
    number = _held.pop(str(file), None)
    if number is not None:
        os.close(number)


@contextmanager
def holding(places: Places) -> Iterator[Callable[[], None]]:
    """Holds a live directory within this context only, as `hold` does for the process's life.

    Gives a function that lets go of it before; any thread may call it, and again.
    """
    numbers: list[int] = []
    with suppress(OSError):
        numbers = [number for number in (_awaited(places, file_of(places)),) if number is not None]

    def let_go() -> None:
        with suppress(IndexError):
            os.close(numbers.pop())

    try:
        yield let_go
    finally:
        let_go()


def _awaited(places: Places, file: Path) -> int | None:
    """The file, locked, once nobody removes the directory; None if that takes too long."""
    for _ in range(_TRIES):
        number = _taken(places, file)
        if number is not None:
            return number
        time.sleep(_BETWEEN_TRIES_S)
    return None


def _taken(places: Places, file: Path) -> int | None:
    """The file, locked; None if the directory is being removed, or was meanwhile."""
    try:
        number = _opened(places, file)
    except FileNotFoundError:
        if _is_ours(places):
            return None
        raise
    if _lock(number, fcntl.LOCK_SH) and _is_at(number, file):
        return number
    os.close(number)
    return None


def is_in_use(places: Places) -> bool:
    """Whether some process, this one too, holds a live directory."""
    try:
        number = os.open(file_of(places), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _lock(number, fcntl.LOCK_EX)
    finally:
        os.close(number)


@contextmanager
def exclusively(places: Places) -> Iterator[bool]:
    """Keeps others from taking hold of a live directory; gives False if one has it already.

    Or if that cannot be told. Whoever comes meanwhile waits a second at most. Raises OSError if
    there is no such directory, or it cannot be written.
    """
    file = file_of(places)
    number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_alone = _is_at(number, file)
    except OSError:  # held, or no locks here
        is_alone = False
    try:
        yield is_alone
    finally:
        os.close(number)


def _opened(places: Places, file: Path) -> int:
    """The file, made if need be; with its folders, where they are ours."""
    if _is_ours(places):
        make_folders(places.records, 0o777 if is_shared(os.environ) else 0o700)
    flags = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(file, os.O_RDWR | flags, 0o644)
    except PermissionError:  # another user's, who shares it
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _is_ours(places: Places) -> bool:
    """Whether this library has laid the directory out, so that it may be made anew."""
    return places.folder("inductor/") == places.root / "inductor"


def _lock(number: int, kind: int) -> bool:
    """Whether the lock was had; also where there are none."""
    try:
        fcntl.flock(number, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_at(number: int, file: Path) -> bool:
    """Whether the file that is open still is the one at this path."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(file, follow_symlinks=False))
    except OSError:
        return False
