"""Files and folders with their status, however deep they lie; links as what they are."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def below(path: Path | str, depth: int = sys.maxsize) -> Iterator[tuple[str, os.stat_result]]:
    """A file or folder and all that is in it, down to a depth, each folder before what it holds.

    What cannot be read, or vanishes meanwhile, is passed over.
    """
    waiting = [(os.fspath(path), depth)]
    while waiting:
        at, left = waiting.pop()
        with suppress(OSError):
            status = os.lstat(at)
            yield at, status
            if stat.S_ISDIR(status.st_mode) and left:
                names = sorted(os.listdir(at), reverse=True)
                waiting += [(os.path.join(at, name), left - 1) for name in names]


def names_in(folder: Path | str) -> list[str]:
    """The names in a folder, sorted; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def size_of(path: Path | str) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(status.st_size for _, status in below(path) if stat.S_ISREG(status.st_mode))


def remove_all(path: Path | str) -> bool:
    """Removes a file, or a folder with all that is in it, as far as it can be; whether it is gone.

    Links are removed and not followed. Python's own way fails in a folder that is deep enough.
    """
    for at, status in reversed(tuple(below(path))):
        with suppress(OSError):
            os.rmdir(at) if stat.S_ISDIR(status.st_mode) else os.unlink(at)
    return not os.path.lexists(path)
