"""Reading a file that decides whom to trust."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cachesvc.core.errors import UntrustedError, UsageError
from cachesvc.core.ownership import foreign


def read_guarded(file: Path, what: str, most: int, *, secret: bool = False) -> bytes:
    """The bytes of a file; `what` names its kind in errors.

    A link is followed, since mounted secrets and configuration are links, and for the same reason
    nobody asks who could exchange the directory. Raises UsageError if it cannot be read, is no
    file, or has more than `most` bytes; UntrustedError if it belongs to another user than this one
    or root, or if others could write it, or, where it is `secret`, every user read it.
    """
    data, status = read_bounded(file, what, most)
    _check(file, status, secret)
    return data


def read_bounded(file: Path, what: str, most: int) -> tuple[bytes, os.stat_result]:
    """The bytes of a file and what the system says of it; raises UsageError as `read_guarded`."""
    try:
        # Without O_NONBLOCK a named pipe in the way would be waited for.
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{file} is no file, and so not {what}")
            data = opened.read(most + 1)
    except OSError as error:
        raise UsageError(f"cannot read {what} {file}: {error.strerror or error}") from None
    if len(data) > most:
        raise UsageError(f"{file} has more than {most} bytes, too many for {what}")
    return data, status


def _check(file: Path, status: os.stat_result, secret: bool) -> None:
    if secret and status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise UntrustedError(
            f"{file} can be read by every user of this machine, or written by others: chmod 600"
            " it (for a mounted secret: defaultMode 0400), and make a new key if somebody may have"
            " read it"
        )
    if reason := foreign(str(file), status):
        raise UntrustedError(
            f"{file} decides whom to trust, and {reason}: chmod go-w it, or make a copy of your own"
        )
