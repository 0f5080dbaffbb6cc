"""Whether a directory is fit for what compilers do in it."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cachesvc.core.digest import Json
from cachesvc.core.finding import Finding
from cachesvc.local import mounts
from cachesvc.local.privacy import is_shared, open_to_others
from cachesvc.local.whole import existing

NEEDED_BYTES = 200_000_000
"""Room that a start may need: a bundle of a hundred megabytes, and as much again while it comes."""

NEEDED_INODES = 5_000
"""Files that a start may make: a bundle has some two thousand."""

_LOCAL = "choose a directory on a local disk"
_FULL = {
    errno.ENOSPC: "free space, or get more where there is a quota",
    errno.EDQUOT: "free space in the quota",
}
_CLOSED = {errno.EROFS: "mount it writable", errno.ENOTDIR: "correct the path"}


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory, and what chose it: a variable, or words such as `the live directory`.

    `needed` is whether the compiler works in it; what is wrong elsewhere is only worth knowing.
    `holds_others` is whether only directories below it are used.
    """

    path: Path
    chosen_by: str
    needed: bool = True
    holds_others: bool = False

    @property
    def where(self) -> str:
        """`VARIABLE=path`, or `words path`."""
        return f"{self.chosen_by}{'=' if self.chosen_by.isupper() else ' '}{self.path}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that is wrong with it; nothing is made, and only a nameless file is tried."""
        found = tuple(self._found())
        return found if self.needed else tuple(replace(item, severity="hint") for item in found)

    @property
    def facts(self) -> dict[str, Json]:
        """What was looked at, as plain values; None for what cannot be read."""
        room = self._room()
        return {
            "path": str(self.path),
            "chosen_by": self.chosen_by,
            "file_system": mounts.file_system_of(self.path),
            "free_bytes": None if room is None else room[0],
            "free_inodes": None if room is None else room[1],
        }

    def _found(self) -> Iterator[Finding]:
        yield from self._file_system()
        error = self._closed()
        if error is None or error.errno in _FULL:
            yield from tuple(self._full()) or self._refused(error)
        else:
            yield self._disease(
                "not writable",
                f"nothing can be kept here: {error.strerror or error}",
                _or_another(_CLOSED.get(error.errno or 0, "get the permission")),
            )
        yield from self._others()

    def _file_system(self) -> Iterator[Finding]:
        if kind := mounts.network_file_system(self.path):
            yield self._disease(
                "network file system",
                f"it is {kind}: compilers that share it race and lose files",
                _LOCAL,
            )
        if mounts.is_noexec(self.path):
            yield self._disease(
                "noexec",
                "its file system is mounted noexec, and compiled libraries must be loaded from it",
                "mount it with exec, or choose a directory that can be run from",
            )

    def _closed(self) -> OSError | None:
        """What writing comes to, or None."""
        try:
            with tempfile.TemporaryFile(dir=existing(self.path)) as file:
                file.write(b"0")
        except OSError as error:
            return error
        return None

    def _refused(self, error: OSError | None) -> Iterator[Finding]:
        """A file system that has room and takes nothing: there is a quota."""
        if error is not None:
            what = f"nothing can be written here: {error.strerror or error}"
            yield self._disease("space", what, _or_another(_FULL[error.errno or 0]))

    def _full(self) -> Iterator[Finding]:
        room = self._room()
        if room is None:
            return
        free, inodes = room
        if free is not None and free < NEEDED_BYTES:
            yield self._disease(
                "space",
                f"{free / 1e6:.1f} MB are free, and a bundle may need {NEEDED_BYTES / 1e6:.0f} MB",
                "free space, or choose a directory on another disk",
            )
        if inodes is not None and inodes < NEEDED_INODES:
            yield self._disease(
                "inodes",
                f"{inodes} more files can be made, and a bundle may need {NEEDED_INODES}",
                "remove files, or choose a directory on another disk",
            )

    def _room(self) -> tuple[int | None, int | None] | None:
        """Free bytes and inodes, each None where the file system does not say; None if unread."""
        try:
            status = os.statvfs(existing(self.path))
        except OSError:
            return None
        free = status.f_bavail * status.f_frsize if status.f_blocks else None
        return free, status.f_favail if status.f_files else None

    def _others(self) -> Iterator[Finding]:
        """The first place on the way where others can put files, unless they are trusted."""
        # What lies below is used, and a sticky directory protects that.
        below = self.path / "live" if self.holds_others else self.path
        refusal = None if is_shared(os.environ) else open_to_others(below)
        if refusal is not None:
            yield self._disease("open to others", refusal.what, refusal.cure)

    def _disease(self, kind: str, what: str, cure: str) -> Finding:
        named = f"{cure} ({self.chosen_by})" if self.chosen_by.isupper() else cure
        return Finding(kind, "disease", what, where=self.where, cure=named)


def _or_another(cure: str) -> str:
    return f"{cure}, or choose another directory"
