"""Who can write at a path: whether what lies there can only have come from this user."""

from __future__ import annotations

import errno
import functools
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_LINKS = 40


@dataclass(frozen=True, slots=True)
class Opening:
    """A directory or link on a way where others can put something, and why they can.

    `is_ours` is whether it is this user's, who can close it.
    """

    path: str
    reason: str
    is_ours: bool


def openings(path: str) -> Iterator[Opening]:
    """Where anyone but this user and root can decide what is found at `path`, from the root on.

    Every directory and link on the way there counts, since whoever can replace one of them decides
    what is found at its end; a sticky directory that all can write protects what is in it, but not
    from what is added, so the end of the way must not be one. A path that does not exist yet is
    judged by the way to it alone. The private group that many systems give each user is no other;
    where a user namespace does not show who owns a directory, root is taken to.
    """
    steps = tuple(dict.fromkeys(_steps(path)))
    for step in steps:
        seen = _lstat(step)
        reason = None if seen is None else _why_open(step, seen, is_end=step == steps[-1])
        if seen is not None and reason is not None:
            yield Opening(step, reason, is_ours=seen.st_uid == os.geteuid())


def others_may_write(path: str) -> bool:
    """Whether anyone but this user could put files into the directory at `path`.

    As `openings` judges it; and the directory itself must belong to this user.
    """
    if any(openings(path)):
        return True
    try:
        return os.stat(path).st_uid != os.geteuid()
    except OSError:
        return False


def foreign(path: str, seen: os.stat_result) -> str | None:
    """Why a file, directory or link may not be this user's or root's work, or None."""
    if reason := anothers(seen):
        return reason
    return None if stat.S_ISLNK(seen.st_mode) else _writers(path, seen)


def anothers(seen: os.stat_result) -> str | None:
    """Whose it is, if neither this user's nor root's."""
    if _is_trusted(seen.st_uid):
        return None
    return f"it belongs to another user (UID {seen.st_uid})"


def _why_open(path: str, seen: os.stat_result, *, is_end: bool) -> str | None:
    is_sticky = seen.st_mode & stat.S_ISVTX and not is_end
    return foreign(path, seen) if not (is_sticky and _is_trusted(seen.st_uid)) else None


def _writers(path: str, seen: os.stat_result) -> str | None:
    """Which others can write, by the mode. The group's bits also stand for what an ACL allows."""
    if seen.st_mode & stat.S_IWOTH:
        return "every user of this machine can write to it"
    if not seen.st_mode & stat.S_IWGRP:
        return None
    if _is_private_group(seen.st_gid, os.geteuid()) and not _has_acl(path):
        return None
    return f"its group (GID {seen.st_gid}) can write to it"


@functools.cache
def _is_private_group(group: int, user: int) -> bool:
    """Whether a group is a user's own: it has the user's name and nobody else in it.

    Root's is not: containers that are given random users put them into it.
    """
    try:
        who, whose = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    is_own = who.pw_gid == group and whose.gr_name == who.pw_name
    return user != 0 and is_own and set(whose.gr_mem) <= {who.pw_name}


def _has_acl(path: str) -> bool:
    try:
        os.getxattr(path, "system.posix_acl_access")
    except OSError as error:
        return error.errno not in {errno.ENODATA, errno.ENOTSUP}
    return True


def _is_trusted(owner: int) -> bool:
    return owner in {0, os.geteuid()} or owner == _unmapped()


@functools.cache
def _unmapped() -> int | None:
    """The owner that a user namespace shows for users it does not know, the host's root among
    them; None where every user is known."""
    try:
        with open("/proc/self/uid_map") as known, open("/proc/sys/kernel/overflowuid") as stand_in:
            ranges = [tuple(map(int, line.split())) for line in known]
            owner = int(stand_in.read())
    except (OSError, ValueError):
        return None
    return None if any(first <= owner < first + size for first, _, size in ranges) else owner


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
    absolute = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    parts = absolute.split("/")[::-1]
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
