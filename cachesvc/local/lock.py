"""The lock of a live directory: the kernel's, so a killed process never holds it."""

from __future__ import annotations

import fcntl

from filelock import FileLock, Timeout

from cachesvc.core.errors import BusyError, TccacheError
from cachesvc.local.places import Places
from cachesvc.local.whole import disk_errors

PATIENCE_S = 120.0
"""How long to wait for another process that changes the directory."""


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

    Raises BusyError if another process keeps it longer than `patience_s` seconds, TccacheError
    if there can be none here.
    """
    with disk_errors(places.root):
        places.records.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=patience_s)
        except Timeout:
            raise BusyError(
                f"another process has been seeding {places.root} for more than"
                f" {patience_s:.0f} s: wait for it, or use another live directory"
            ) from None
        except NotImplementedError:
            raise TccacheError(
                f"the file system of {places.root} has no locks: use another live directory"
            ) from None
