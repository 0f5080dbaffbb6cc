"""collect_live: what this machine can do without of its live directories.

Only directories that this library has made for itself are looked at, and none that a process uses
is touched, but for what killed processes have left in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from cachesvc.core.errors import BusyError, TccacheError, UsageError
from cachesvc.local.leftovers import Leftover, leftovers
from cachesvc.local.lock import lock_of, take
from cachesvc.local.own_live import (
    OwnLive,
    gone_in,
    is_used,
    live_folders,
    own_lives,
    remove_live,
)
from cachesvc.local.walk import remove_all, size_of
from cachesvc.start.progress import Progress, quiet

_DAY_S = 86_400.0
_YEAR_9999_S = 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class CollectedItem:
    """A live directory, or something that was left in one, and why it went or stays.

    `last_used` is the time in UTC, as manifests write it; None for what was left.
    """

    path: str
    bytes: int
    last_used: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class CollectedLive:
    """What was removed, or would be: whole live directories, and leftovers; and what stays.

    `failed` says what could not be removed, `notes` what was not looked at.
    """

    removed: tuple[CollectedItem, ...] = ()
    leftovers: tuple[CollectedItem, ...] = ()
    kept: tuple[CollectedItem, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def bytes(self) -> int:
        """Bytes of all that was removed, or would be."""
        return sum(item.bytes for item in (*self.removed, *self.leftovers))


def collect_live(
    *,
    older_than_s: float | None = None,
    keep_bytes: int | None = None,
    dry_run: bool = False,
    progress: Progress = quiet,
) -> CollectedLive:
    """Removes live directories of this library's own that nobody uses.

    Those that no process has taken hold of, and nothing was seeded or compiled into, for
    `older_than_s` seconds by this machine's clock; and then the ones unused for longest, until the
    others hold at most `keep_bytes` bytes. One that a process uses stays, also where that is a
    program without this library which was started with a variable that leads there, or has mapped a
    file of it; and so does a directory that the user set. Without either, and besides, what killed
    processes have left is removed; with `older_than_s`, units that were set aside longer ago, too.
    `dry_run` only says what would be.

    Safe beside starts, pulls and itself. What cannot be removed is told and the rest is. Raises
    UsageError for a number below 0.
    """
    for name, number in (("older_than_s", older_than_s), ("keep_bytes", keep_bytes)):
        if number is not None and not number >= 0:
            raise UsageError(f"{name} is {number}: give a number from 0 on")
    work = _Collection(time.time(), older_than_s, keep_bytes, dry_run, progress)
    work.collect()
    return CollectedLive(
        tuple(work.removed),
        tuple(work.left),
        tuple(work.kept),
        tuple(work.failed),
        tuple(work.notes),
        dry_run,
    )


@dataclass
class _Collection:
    """One collection under way."""

    now_s: float
    older_than_s: float | None
    keep_bytes: int | None
    dry_run: bool
    progress: Progress
    removed: list[CollectedItem] = field(default_factory=list)
    left: list[CollectedItem] = field(default_factory=list)
    kept: list[CollectedItem] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def collect(self) -> None:
        folders, told = live_folders(os.environ)
        self.notes += told
        lives: list[OwnLive] = []
        for folder in folders:
            self.progress(f"look into {folder}")
            self._remove_gone(folder)
            lives += own_lives(folder, os.environ)
        lives.sort(key=lambda live: live.last_used_s)
        total = sum(live.bytes for live in lives)
        for live in lives:
            reason = self._reason(live, total)
            if reason is not None and self._remove(live, reason):
                total -= live.bytes

    def _reason(self, live: OwnLive, total: int) -> str | None:
        """Why a live directory should go; `total` are the bytes of all that are there."""
        unused_s = self.now_s - live.last_used_s
        if self.older_than_s is not None and unused_s > self.older_than_s:
            return f"unused for {unused_s / _DAY_S:.1f} days"
        if self.keep_bytes is not None and total > self.keep_bytes:
            return f"all hold {total / 1e6:.1f} MB, and {self.keep_bytes / 1e6:.1f} MB may stay"
        self._keep(live, "no age and no size was given that speaks against it")
        return None

    def _remove(self, live: OwnLive, reason: str) -> bool:
        self.progress(f"remove {live.places.root}")
        try:
            is_free = not is_used(live.places) if self.dry_run else remove_live(live.places)
            if not is_free:
                self._keep(live, "a process uses it")
                return False
        except FileNotFoundError:  # another collector was quicker
            return True
        except (OSError, TccacheError) as error:
            self.failed.append(f"{live.places.root} cannot be removed: {error}")
            return False
        self.removed.append(_item(live, reason))
        return True

    def _keep(self, live: OwnLive, reason: str) -> None:
        """Lets a live directory be, without what killed processes have left in it."""
        self.kept.append(_item(live, reason))
        for item in self._leftovers(live):
            if self.dry_run or remove_all(item.path):
                self.left.append(_left(item))
            else:
                self.failed.append(f"{item.path} cannot be removed")

    def _leftovers(self, live: OwnLive) -> Iterator[Leftover]:
        """Found and removed under the lock; none while another process has it."""
        if not live.places.records.is_dir():
            return
        lock = lock_of(live.places)
        try:
            take(lock, live.places, 0)
        except BusyError:
            return
        except TccacheError as error:
            self.notes.append(str(error))
            return
        try:
            yield from leftovers(live.places, self.now_s, set_aside_s=self.older_than_s)
        finally:
            lock.release()

    def _remove_gone(self, folder: Path) -> None:
        for gone in gone_in(folder):
            item = Leftover(gone, size_of(gone), "its removal was not finished")
            if self.dry_run or remove_all(gone):
                self.left.append(_left(item))
            else:
                self.failed.append(f"{gone} cannot be removed")


def _item(live: OwnLive, reason: str) -> CollectedItem:
    return CollectedItem(str(live.places.root), live.bytes, _time(live.last_used_s), reason)


def _left(item: Leftover) -> CollectedItem:
    return CollectedItem(str(item.path), item.bytes, None, item.reason)


def _time(seconds: float) -> str:
    when = datetime.fromtimestamp(min(max(seconds, 0.0), _YEAR_9999_S), timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
