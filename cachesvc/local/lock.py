"""The lock of a live directory: the kernel's, so a killed process never holds it.

Who brings a large bundle over a slow wire holds it for longer than anyone should wait for a process
that hangs. So the holder shows a sign of life while it gets on, and who waits looks for that.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from time import monotonic, time_ns

from filelock import FileLock, Timeout

from cachesvc.core.errors import BusyError, TccacheError
from cachesvc.local.places import Places
from cachesvc.local.whole import disk_errors

PATIENCE_S = 120.0
"""How long to wait for another process that changes the directory, or for a sign of life of it."""

_SIGN = "seeding"
_BETWEEN_SIGNS_S = 1.0


class SignOfLife:
    """What the lock's holder shows to those who wait for it."""

    def __init__(self, places: Places) -> None:
        self._file = places.records / _SIGN
        self._next = 0.0

    def show(self) -> None:
        """Says that the holder gets on; without a word if it cannot, and once a second at most."""
        if monotonic() < self._next:
            return
        self._next = monotonic() + _BETWEEN_SIGNS_S
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with suppress(OSError):
            number = os.open(self._file, flags, 0o644)
            try:
                os.utime(number, ns=(time_ns(), time_ns()))
            finally:
                os.close(number)

    def seen(self) -> tuple[int, int] | None:
        """Another value than before if anything was shown since."""
        try:
            status = os.lstat(self._file)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


def lock_of(places: Places) -> FileLock:
    """The lock, not taken yet. A second one in this process waits for the first, as elsewhere.

    Any thread may release it, not only the one that took it.
    """
    return FileLock(str(places.records / "lock"), thread_local=False)


def is_held(places: Places) -> bool:
    """Whether some process holds the lock now; nothing is made, and nobody is kept waiting."""
    try:
        with open(places.records / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def take(lock: FileLock, places: Places, patience_s: float) -> None:
    """Takes the lock, making the folder that it lies in.

    Raises BusyError if other processes keep it longer than `patience_s` seconds, TccacheError
    if there can be none here.
    """
    if not _has_taken(lock, places, patience_s):
        raise BusyError(
            f"another process has been seeding {places.root} for more than {patience_s:.0f} s:"
            " wait for it, or use another live directory"
        )


def take_in_turn(lock: FileLock, places: Places, patience_s: float) -> None:
    """As `take`, but waits for as long as those who hold it get on.

    Raises BusyError if none of them has shown a sign of life for `patience_s` seconds.
    """
    sign = SignOfLife(places)
    seen = sign.seen()
    while not _has_taken(lock, places, patience_s):
        before, seen = seen, sign.seen()
        if seen == before:
            raise BusyError(
                f"another process has been seeding {places.root} and has not got on for"
                f" {patience_s:.0f} s: see what it is waiting for, or use another live directory"
            )


def _has_taken(lock: FileLock, places: Places, patience_s: float) -> bool:
    with disk_errors(places.root):
        places.records.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=patience_s)
        except Timeout:
            return False
        except NotImplementedError:
            raise TccacheError(
                f"the file system of {places.root} has no locks: use another live directory"
            ) from None
    return True
