"""Live directories that nobody else can put files into: what lies there is run.

A directory of this library's own is made for its user alone, and closed again where it was opened.
Mode bits that are right now do not say who wrote before: one that was open is taken only if all
that lies in it is this user's. Whoever means to share says so by TCCACHE_SHARED.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.errors import UntrustedError
from cachesvc.core.ownership import Opening, anothers, foreign, openings
from cachesvc.local.walk import below
from cachesvc.local.whole import existing

SHARED = "TCCACHE_SHARED"

_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS = "others can put files there, and what lies there is run"
_UNLESS = f"or set {SHARED}=1 if everyone who can write there is trusted"
_TRIES = 3


def is_shared(environ: Mapping[str, str]) -> bool:
    """Whether the user trusts everyone who can write to the directories on the way."""
    return environ.get(SHARED, "") not in ("", "0")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a directory is not used: who can put files there, and what to do."""

    what: str
    cure: str

    def __str__(self) -> str:
        return f"{self.what}: {self.cure}"


def open_to_others(*folders: Path) -> Refusal | None:
    """Why others can put files into one of these directories; None if nobody can.

    One that does not exist yet is judged by the way to it.
    """
    for folder in folders:
        for opening in openings(str(folder)):
            return _refusal(opening)
    return None


def planted_in(records: Path) -> Refusal | None:
    """What another user has made among our records, which would be believed; None if nothing."""
    for path, seen in below(records, depth=1):
        if reason := anothers(seen):
            return Refusal(f"{_OTHERS}: {path}: {reason}", f"remove {path}, {_UNLESS}")
    return None


def _refusal(opening: Opening) -> Refusal:
    cure = f"chmod go-w {opening.path}" if opening.is_ours else "choose a directory of your own"
    return Refusal(f"{_OTHERS}: {opening.path}: {opening.reason}", f"{cure}, {_UNLESS}")


def take_name(folder: Path) -> None:
    """Makes a missing directory, for this user alone, where anyone could make it first: below a
    sticky directory that all can write. Raises OSError if it cannot be made."""
    if not folder.is_dir() and os.stat(existing(folder)).st_mode & _BY_OTHERS:
        make_folders(folder, 0o700)


def make_private(root: Path, folder: Path, own: Sequence[Path]) -> tuple[str, ...]:
    """Makes a live directory `root`, with `folder` in it, for this user alone.

    `own` are the directories on the way, and these two, that this library makes and may close to
    others; gives what was closed, to be told. Raises UntrustedError where others can put files
    that cannot be kept out, or have done so; OSError if nothing can be made.
    """
    told = _closed(folder, root, own)
    if not folder.is_dir():
        make_folders(folder, 0o700)
        told += _closed(folder, root, own)  # somebody may have made one of them meanwhile
    return told


def make_folders(folder: Path, mode: int) -> None:
    """Makes a directory and all above it that are missing, each with this mode."""
    if folder.is_dir():
        return
    if folder != folder.parent:
        make_folders(folder.parent, mode)
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(folder).st_mode):  # else somebody was quicker
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(folder)) from None


def check_links(folder: Path, below: Path) -> None:
    """Raises UntrustedError if a link that others made lies on the way from a folder to one below.

    What is written below would go where the link leads.
    """
    for step in (below, *below.parents):
        with suppress(FileNotFoundError):
            seen = os.lstat(step)
            reason = foreign(str(step), seen) if stat.S_ISLNK(seen.st_mode) else None
            if reason is not None:
                raise UntrustedError(f"{step} is a link, and {reason}: remove it")
        if step == folder:
            return


def _closed(folder: Path, root: Path, own: Sequence[Path]) -> tuple[str, ...]:
    """Closes what is open of our own until nothing is: while it was, it may have been exchanged."""
    told: list[str] = []
    for _ in range(_TRIES):
        found = tuple(openings(str(folder)))
        if not found:
            _hide(root)
            if refusal := planted_in(folder):
                raise UntrustedError(str(refusal))
            return tuple(told)
        names = {os.path.realpath(path) for path in own}
        for opening in found:
            if not opening.is_ours or opening.path not in names:
                raise UntrustedError(str(_refusal(opening)))
        _check_contents(root)
        for opening in found:
            _forbid(opening.path, _BY_OTHERS)
            told.append(f"{opening.path} was closed to others: {opening.reason}")
    raise UntrustedError(str(_refusal(found[0])))


def _hide(root: Path) -> None:
    """Closes a live directory that others can look into: they may reach what lies open in it."""
    with suppress(FileNotFoundError, PermissionError):
        seen = os.stat(root)
        if seen.st_mode & _FOR_OTHERS and seen.st_uid == os.geteuid():
            _check_contents(root)
            _forbid(str(root), _FOR_OTHERS)


def _check_contents(root: Path) -> None:
    """Raises UntrustedError if others have put, or could have changed, anything in here."""
    for path, seen in below(root):
        if path == str(root):
            continue
        if reason := foreign(path, seen):
            raise UntrustedError(f"{_OTHERS}: {path}: {reason}: remove {root}, {_UNLESS}")


def _forbid(folder: str, bits: int) -> None:
    """Takes permissions from a directory of this user's, and from nothing else."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        seen = os.fstat(opened)
        if seen.st_uid == os.geteuid():
            os.fchmod(opened, stat.S_IMODE(seen.st_mode) & ~bits)
    finally:
        os.close(opened)
