"""What killed processes have left in a live directory: no cache, and nobody's any more."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.temporary import MARK
from cachesvc.local.places import Places
from cachesvc.local.quarantine import kept_in
from cachesvc.local.walk import below, size_of

# Of Triton, of Inductor, and of versions of this library that had no locks on theirs.
_OTHERS = re.compile(r"tmp\.pid_\d+.*|\.\d+\.\d+\.tmp|\.[0-9a-f]{16}\.tmp|\.tccache-.*")
_LONG_S = 86_400.0
"""No compiler takes as long to write one file."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or folder, its bytes with all that is in it, and what it is."""

    path: Path
    bytes: int
    reason: str


def leftovers(
    places: Places, now_s: float, *, set_aside_s: float | None = None
) -> tuple[Leftover, ...]:
    """All of them, under the live directory's lock; `now_s` is the time since the epoch.

    Units that were set aside longer ago than `set_aside_s` seconds are among them, if it is given:
    that they have failed stays known without their files.
    """
    found = [item for _, folder in places.folders for item in _in(folder, now_s)]
    found += _in(places.records, now_s)
    if set_aside_s is not None:
        found += _set_aside(kept_in(places.records), now_s - set_aside_s)
    return tuple({item.path: item for item in found}.values())


def _in(folder: Path, now_s: float) -> Iterator[Leftover]:
    """Those in a folder of a live directory, at whatever depth."""
    done: tuple[str, ...] = ()
    for path, status in below(folder):
        if path.startswith(done):
            continue
        if reason := _why(path, status, now_s):
            done = (*done, path + "/")
            yield Leftover(Path(path), size_of(path), reason)


def _why(path: str, status: os.stat_result, now_s: float) -> str | None:
    name = os.path.basename(path)
    if name.endswith(MARK):
        return None if _is_held(path) else "a killed process of tccache left it"
    if _OTHERS.fullmatch(name) and status.st_mtime < now_s - _LONG_S:
        return "a killed process left it a day ago or longer"
    return None


def _is_held(path: str) -> bool:
    """Whether a process is at work there; also if that cannot be told."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)
    return False


def _set_aside(folder: Path, before_s: float) -> Iterator[Leftover]:
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if os.lstat(folder / name).st_mtime < before_s:
                size = size_of(folder / name)
                yield Leftover(folder / name, size, "a unit that failed here and was set aside")
