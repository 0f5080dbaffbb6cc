"""Who can write at a path: whether what lies there can only have come from this user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

_MAX_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def others_may_write(path: str) -> bool:
    """Whether anyone but this user could put files into the directory at `path`.

    Every directory and link on the way there counts, since whoever can replace one of them decides
    what is found at its end; root may, and a sticky directory that all can write protects what is
    in it. The directory itself must belong to this user. One that does not exist yet is judged by
    the way to it alone.
    """
    way = [seen for step in _steps(path) if (seen := _lstat(step)) is not None]
    if any(_replaceable(seen) for seen in way):
        return True
    if not os.path.exists(path):
        return False
    return way[-1].st_uid != os.geteuid() or bool(way[-1].st_mode & _OTHERS_WRITE)


def _replaceable(seen: os.stat_result) -> bool:
    """Whether others own the thing, or can exchange what is in it."""
    if seen.st_uid not in {0, os.geteuid()}:
        return True
    if stat.S_ISLNK(seen.st_mode) or seen.st_mode & stat.S_ISVTX:
        return False
    return bool(seen.st_mode & _OTHERS_WRITE)


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _steps(path: str) -> Iterator[str]:
    """Each directory and link that the kernel passes on the way to `path`, in that order."""
    at = "/"
    yield at
    links = 0
    parts = os.path.join(os.getcwd(), path).split("/")[::-1]
    while parts:
        part = parts.pop()
        if part == "..":
            at = os.path.dirname(at)
        elif part not in {"", "."}:
            at = os.path.join(at, part)
            yield at
            if os.path.islink(at) and links < _MAX_LINKS:
                links += 1
                link = os.readlink(at)
                parts += link.split("/")[::-1]
                at = "/" if link.startswith("/") else os.path.dirname(at)
