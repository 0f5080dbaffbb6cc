"""What a program does with a live directory, seen from outside: units it used, units it added.

A file that is read gets a new access time where the file system keeps them. Linux keeps them by
default (`relatime`) for a file whose access time is not newer than its modification time, so
`watch` sets it to a second before that. Sizes, modification times and inodes stay as they are:
ledgers and receipts go by them.

Every reader counts: processes that share a live directory count each other's reads, and an entry
that the compiler looked at and found not to fit counts as used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cachesvc.core.temporary import new_file
from cachesvc.local.layout import is_group, is_passed_over
from cachesvc.local.tree import FoundFile, FoundUnit, Scan

_SECOND_NS = 1_000_000_000


class _Mark(NamedTuple):
    """A file as it was marked: its path, its inode, the access time it was given."""

    file: Path
    inode: int
    atime_ns: int

    def was_read(self) -> bool:
        """Whether just this file was read since; one that was put in its place was not."""
        try:
            status = os.stat(self.file)
        except OSError:
            return False
        return status.st_ino == self.inode and status.st_atime_ns > self.atime_ns


@dataclass(frozen=True, slots=True)
class Watch:
    """The files of some units, marked; `tells` is False where access times tell nothing."""

    marks: Mapping[str, tuple[_Mark, ...]]
    tells: bool

    def used(self) -> frozenset[str] | None:
        """Keys of the units of which a file was read since, or None where that cannot be told."""
        if not self.tells:
            return None
        marked = self.marks.items()
        return frozenset(key for key, marks in marked if any(mark.was_read() for mark in marks))


def watch(units: Iterable[FoundUnit], folders: Iterable[Path]) -> Watch:
    """Marks the files of units; `folders` are the trees that they lie in.

    Groups are left alone: a scan reads them, and whoever uses a kernel reads its other files too.
    """
    tells = all(_keeps_access_times(folder) for folder in folders)
    try:
        marks = {unit.key: tuple(_marks(unit.files)) for unit in units} if tells else {}
    except OSError:  # a file of another user: its access time can be read, but not set
        return Watch({}, tells=False)
    return Watch(marks, tells)


def _marks(files: Iterable[FoundFile]) -> Iterator[_Mark]:
    for file in files:
        if is_group(file.path):
            continue
        try:
            status = os.stat(file.source)
            before = max(0, status.st_mtime_ns - _SECOND_NS)
            os.utime(file.source, ns=(before, status.st_mtime_ns))
            given = os.stat(file.source).st_atime_ns
        except FileNotFoundError:
            continue
        yield _Mark(file.source, status.st_ino, given)


def _keeps_access_times(folder: Path) -> bool:
    """Whether reading a file in this folder gives it a new access time; tried with one of our own.

    Its name begins with a dot, so nobody takes it for an entry of a cache.
    """
    try:
        with new_file(folder) as (path, probe):
            probe.write(b"read me")
            probe.flush()
            status = os.stat(path)
            os.utime(path, ns=(status.st_mtime_ns - _SECOND_NS, status.st_mtime_ns))
            marked = os.stat(path).st_atime_ns
            with open(path, "rb") as reading:
                reading.read()
            return os.stat(path).st_atime_ns > marked
    except OSError:
        return False


def additions(before: Scan, after: Scan) -> tuple[FoundUnit, ...]:
    """The units that came between two scans, or have files now that they had not."""
    known = {file.path for unit in before.units for file in unit.files}
    return tuple(unit for unit in after.units if any(file.path not in known for file in unit.files))


def listing(trees: Iterable[tuple[str, Path]]) -> frozenset[str]:
    """The paths of all files of some trees, given as for `scan`; reads names and nothing else."""
    return frozenset(path for prefix, root in trees for path in _below(root, prefix, ()))


def _below(folder: Path | str, section: str, parts: tuple[str, ...]) -> Iterator[str]:
    try:
        with os.scandir(folder) as items:
            for item in items:
                below = (*parts, item.name)
                if is_passed_over(section, below):
                    continue
                if item.is_dir(follow_symlinks=False):
                    yield from _below(item.path, section, below)
                else:
                    yield item.path
    except OSError:
        return
