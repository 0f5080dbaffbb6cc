"""This library's own live directories on this machine, and the removal of one.

The order is the protocol. A remover takes the hold for itself alone, then the lock, so no process
uses the directory, or seeds it; one rename takes it out of everybody's way; then it is deleted. Who
comes meanwhile finds nothing at its path, and makes it anew. A remover that is killed leaves
a folder under a name that no environment has, which the next one deletes.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.errors import BusyError
from cachesvc.local.in_use import exclusively, is_in_use
from cachesvc.local.live import INDUCTOR, LIVES, TRITON, own_homes
from cachesvc.local.lock import lock_of, take
from cachesvc.local.places import RECORDS, Places, under
from cachesvc.local.privacy import is_shared, open_to_others
from cachesvc.local.programs import is_known_to_a_program
from cachesvc.local.walk import below, names_in, remove_all

# The environment, and whom to trust.
_NAME = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{16})?")
_GONE = ".gone-"
_TRIES = 3


@dataclass(frozen=True, slots=True)
class OwnLive:
    """A live directory of our own: its bytes, and when it was used last (seconds, epoch)."""

    places: Places
    bytes: int
    last_used_s: float


def live_folders(environ: Mapping[str, str]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The folders of our own homes that hold live directories; and why others are left alone.

    Where others can put files nothing is removed: what is found there may not be ours.
    """
    found, told = [], []
    for home in own_homes(environ):
        folder = home / LIVES
        if not _is_own(folder):
            continue
        refusal = None if is_shared(environ) else open_to_others(folder)
        if refusal is None:
            found.append(folder)
        else:
            told.append(f"{folder} was left alone: {refusal}")
    return tuple(found), tuple(told)


def own_lives(folder: Path, environ: Mapping[str, str]) -> Iterator[OwnLive]:
    """The live directories in such a folder, but for one that a variable names: the user's, or
    that of a process which has started this one."""
    named = [os.path.realpath(environ[name]) for name in (INDUCTOR, TRITON) if environ.get(name)]
    for name in names_in(folder):
        root = folder / name
        if not _NAME.fullmatch(name) or not (_is_own(root) and _is_own(root / RECORDS)):
            continue
        if not any(Path(path).is_relative_to(os.path.realpath(root)) for path in named):
            places = under(root)
            with suppress(FileNotFoundError):  # another process is removing it
                yield OwnLive(places, *_measured(places))


def is_used(places: Places) -> bool:
    """Whether a process uses a live directory: one that holds it, or a program that was told of
    it."""
    return is_in_use(places) or is_known_to_a_program(places.root)


def remove_live(places: Places) -> bool:
    """Removes a live directory; False if a process uses it, or if that cannot be told.

    Raises FileNotFoundError if another process has removed it, OSError if it cannot be removed;
    what is left of it then is not found any more.
    """
    with exclusively(places) as is_alone:
        if not is_alone or is_known_to_a_program(places.root):
            return False
        lock = lock_of(places)
        try:
            take(lock, places, 0)
        except BusyError:
            return False
        try:
            gone = places.root.with_name(_GONE + secrets.token_hex(8))
            os.rename(places.root, gone)
            # A process that was on its way to the old path may still make a file there.
            if not any(remove_all(gone) for _ in range(_TRIES)):
                raise OSError(f"not all of it could be, and the rest lies in {gone}")
        finally:
            lock.release()
    return True


def gone_in(folder: Path) -> tuple[Path, ...]:
    """What removers that were killed have left in a folder of live directories."""
    names = (name for name in names_in(folder) if name.startswith(_GONE))
    return tuple(folder / name for name in names if _is_own(folder / name))


def _is_own(folder: Path) -> bool:
    """Whether it is a directory, and no link, that belongs to this user."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _measured(places: Places) -> tuple[int, float]:
    """Its bytes; and when a process took hold of it last, or anything was seeded, or compiled by
    whomever: as the files are dated."""
    lock = str(places.records / "lock")
    found = [(path, s) for path, s in below(places.root) if stat.S_ISREG(s.st_mode)]
    dates = (status.st_mtime for path, status in found if path != lock)
    last_used = max(dates, default=0.0) or os.lstat(places.root).st_mtime
    return sum(status.st_size for _, status in found), last_used
