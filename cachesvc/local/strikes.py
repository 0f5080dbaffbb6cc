"""Starts that died: a process that is killed in its first call can report nothing itself.

Before the first call a start leaves a file with the segments that it uses, and holds a lock on it
until the call is over. The lock is the kernel's: a file that is there and not locked was left by a
process that died. (A number of a process would not do: in a container started again it is the same,
and in another container it means another process.)

An orchestrator that kills a process looks like a damaged library, so one death is no proof.
Processes of one node that start together and die together are one death, not several: each writes
how many deaths it knew of, and the next start counts one more than the greatest number it finds.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cachesvc.local.whole import disk_errors

_FOLDER = "starts"
_MOST_DEAD = 16


class Measure(Enum):
    """What a start does about the deaths before it, in a row and from the same segments."""

    TRUST = "trust"
    """Nothing happened, or the cache was found not to be at fault."""
    VERIFY = "verify"
    """Read all bytes: the live directory may be damaged."""
    SET_ASIDE = "set aside"
    """Start without what the segments brought."""
    RESTORE = "restore"
    """It died without them too: put them back."""


def measure(deaths: int) -> Measure:
    """The measure after so many deaths in a row."""
    steps = (Measure.TRUST, Measure.VERIFY, Measure.SET_ASIDE, Measure.RESTORE)
    return steps[deaths] if deaths < len(steps) else Measure.TRUST


@dataclass(frozen=True, slots=True)
class Start:
    """A start under way; `descriptor` holds its lock. `before` are files of deaths before it."""

    file: Path
    before: tuple[Path, ...]
    descriptor: int


@dataclass(frozen=True, slots=True)
class _Dead:
    """What a start that died had written."""

    file: Path
    segments: frozenset[str]
    deaths: int
    mtime_ns: int


def died_before(records: Path, segments: Collection[str]) -> int:
    """How many starts in a row that used any of these segments have died; 0 if it is not known.

    Without segments those are counted that used none either: what this machine compiled itself.
    """
    return _count(_of(records, segments))


def _count(dead: Iterable[_Dead]) -> int:
    return max((one.deaths + 1 for one in dead), default=0)


def begin_start(records: Path, segments: Collection[str]) -> Start:
    """Writes that a first call begins. Raises TccacheError if that cannot be written.

    Removes what earlier deaths left beyond what has to be known.
    """
    before = tuple(_of(records, segments))
    _tidy(records)
    folder = records / _FOLDER
    text = json.dumps({"segments": sorted(segments), "deaths": _count(before)})
    temporary, file = (folder / f"{dot}{secrets.token_hex(8)}.json" for dot in (".", ""))
    with disk_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Locked before it has its name, or another start would take it for a dead one.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, text.encode())
            os.rename(temporary, file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            os.close(descriptor)
            raise
    return Start(file, tuple(dead.file for dead in before), descriptor)


def end_start(start: Start) -> None:
    """Writes that the process lived through its first call, whatever came of it.

    Deaths before it from the same segments are forgotten: they were not in a row. One that came
    while it ran is not: of processes that start together a cache may kill some and not others.
    Never raises.
    """
    for file in start.before:
        _remove(file)
    _remove(start.file)
    os.close(start.descriptor)


def _of(records: Path, segments: Collection[str]) -> Iterator[_Dead]:
    for dead in _all_dead(records):
        if dead.segments & set(segments) or (not dead.segments and not segments):
            yield dead


def _all_dead(records: Path) -> Iterator[_Dead]:
    folder = records / _FOLDER
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.endswith(".json") and not name.startswith("."):
            yield from _read(folder / name)


def _read(file: Path) -> Iterator[_Dead]:
    """The dead start that left this file; removes what is none and is not written any more."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        raw = json.loads(os.read(descriptor, 1 << 20))
        segments = frozenset(map(str, raw["segments"]))
        yield _Dead(file, segments, int(raw["deaths"]), os.fstat(descriptor).st_mtime_ns)
    except OSError:
        return  # it lives, or nobody can know
    except (ValueError, LookupError, TypeError):
        _remove(file)
    finally:
        os.close(descriptor)


def _tidy(records: Path) -> None:
    """Keeps the last of the dead for each set of segments, and a few sets."""
    last: dict[frozenset[str], _Dead] = {}
    for dead in sorted(_all_dead(records), key=lambda dead: (dead.deaths, dead.mtime_ns)):
        if dead.segments in last:
            _remove(last[dead.segments].file)
        last[dead.segments] = dead
    youngest = sorted(last.values(), key=lambda dead: dead.mtime_ns, reverse=True)
    for dead in youngest[_MOST_DEAD:]:
        _remove(dead.file)


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError:
        return
