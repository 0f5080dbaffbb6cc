"""Quarantine: units that failed at load or at the first call, set aside so that a start goes on.

What lies in a live directory under a unit's key is moved into this library's records, and the
digests of the bytes that failed are written down. Later seeding leaves out a unit that has no
other bytes than those; one that was only damaged on this disk is brought again, and one that was
published anew is welcome.

The order: files are moved before the record is written, those that make a hit first. A process
killed between the two has moved a unit that is then brought once more.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cachesvc.core.digest import DIGEST, digest_bytes
from cachesvc.core.errors import TccacheError
from cachesvc.core.manifest import Origin, Unit
from cachesvc.core.paths import path_issue
from cachesvc.core.temporary import new_file
from cachesvc.local.damage import content_digest
from cachesvc.local.layout import is_passed_over, seed_order, unit_of
from cachesvc.local.ledger import Ledger, Seeded
from cachesvc.local.lock import PATIENCE_S, lock_of, take
from cachesvc.local.places import Places
from cachesvc.local.receipt import forget_receipts
from cachesvc.local.walk import names_in
from cachesvc.local.whole import disk_errors, read_record, write_whole

_NAME = "quarantine.json"
_FOLDER = "quarantine"
_VERSION = 1
# What one call sets aside is remembered whole, or a bundle of many units would come back in parts.
_MOST_CALLS = 32
# Of calls before the newest, which keeps all its files: it may turn out not to be at fault.
_MOST_KEPT_UNITS = 20
_MOST_KEPT_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class SetAside:
    """A unit that was set aside: why, when, and the digests of all its bytes that failed.

    `segment` is the one that it came from; None for what this machine made itself. `seeded` is what
    the ledger knew of it, so that a unit that comes back is not taken for one's own.
    """

    unit: str
    reason: str
    at: str
    sha256s: tuple[str, ...]
    segment: str | None = None
    seeded: Seeded | None = None

    def covers(self, unit: Unit) -> bool:
        """Whether the unit holds nothing but bytes that have failed under its key."""
        return unit.key == self.unit and {e.sha256 for e in unit.entries} <= set(self.sha256s)

    def __str__(self) -> str:
        return f"{self.unit}: {self.reason}"


def read_quarantine(records: Path) -> tuple[SetAside, ...]:
    """What was set aside in this live directory, oldest first; nothing if it cannot be read."""
    try:
        return _recorded(records)
    except TccacheError:
        return ()


def _recorded(records: Path) -> tuple[SetAside, ...]:
    """As `read_quarantine`; raises TccacheError where another try may read what is there."""
    data = read_record(records / _NAME)
    try:
        raw = json.loads(data)
        if raw["version"] != _VERSION:
            return ()
        return tuple(map(_set_aside, raw["units"]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()


def kept_in(records: Path) -> Path:
    """Where the files of the units lie, in a folder for each."""
    return records / _FOLDER


def _set_aside(raw: Mapping[str, Any]) -> SetAside:
    unit, segment = str(raw["unit"]), raw["segment"]
    if issue := path_issue(unit):
        raise ValueError(issue)
    digests = tuple(text for text in raw["sha256s"] if DIGEST.fullmatch(text))
    at, segment = str(raw["at"]), segment and str(segment)
    seeded = Seeded(Origin(at, "any", segment=segment)) if segment else None
    if raw.get("seeded"):  # earlier versions kept the segment alone
        seeded = Seeded.from_json(raw["seeded"])
    return SetAside(unit, str(raw["reason"]), at, digests, segment, seeded)


def _to_json(item: SetAside) -> dict[str, Any]:
    seeded = None if item.seeded is None else item.seeded.to_json()
    return {
        "unit": item.unit,
        "reason": item.reason,
        "at": item.at,
        "sha256s": item.sha256s,
        "segment": item.segment,
        "seeded": seeded,
    }


def is_set_aside(unit: Unit, quarantine: Iterable[SetAside]) -> SetAside | None:
    """The record that speaks against bringing this unit, if there is one."""
    return next((item for item in quarantine if item.covers(unit)), None)


def set_aside(
    places: Places, units: Mapping[str, str], *, at: str, patience_s: float = PATIENCE_S
) -> tuple[SetAside, ...]:
    """Moves units, each given by its key with the reason, out of the live directory.

    Gives what was set aside: units of which some file lay there. Files are renamed, so a process
    that has them open or mapped keeps them. `at` is the time as manifests write it, and stands for
    this call: it can be put back whole until the next one. Takes the live directory's lock, so it
    MUST NOT be called while this process seeds. Raises BusyError, before anything is moved, and
    TccacheError: what was moved until then is recorded. Calling it again is harmless.
    """
    lock = lock_of(places)
    take(lock, places, patience_s)
    try:
        with disk_errors(places.root):
            return _set_units_aside(places, units, at)
    finally:
        lock.release()


def restore(
    places: Places, units: Collection[str], *, patience_s: float = PATIENCE_S
) -> tuple[str, ...]:
    """Puts units back where they were, because they were not at fault; the keys of those.

    A unit that has been compiled or brought again meanwhile stays as it is, and one whose files
    are not kept any more is only forgotten: later seeding may bring it. Locks and raises as
    `set_aside` does.
    """
    lock = lock_of(places)
    take(lock, places, patience_s)
    try:
        with disk_errors(places.root):
            found = _recorded(places.records)
            back = [i for i in found if i.unit in units and _fits(places, i.unit)]
            _recall(places.records, back)
            for item in back:
                _put_back(places, item.unit)
            _write(places.records, [item for item in found if item.unit not in units])
            return tuple(item.unit for item in back)
    finally:
        lock.release()


def _set_units_aside(places: Places, units: Mapping[str, str], at: str) -> tuple[SetAside, ...]:
    ledger, before = Ledger.read(places.records), _recorded(places.records)
    made: dict[str, SetAside] = {}
    try:
        for unit, reason in units.items():
            files = unit_files(places, unit)
            if not files:
                continue
            digests = {content_digest(path, file) for path, file in files.items()} - {None}
            seeded = ledger.seeded(unit, files)
            segment = seeded.origin.segment if seeded else None
            item = SetAside(unit, reason, at, tuple(sorted(map(str, digests))), segment, seeded)
            kept = places.records / _FOLDER / _folder_name(unit)
            shutil.rmtree(kept, ignore_errors=True)
            for path in sorted(files, key=seed_order, reverse=True):
                _move(files[path], kept / path, places.records)
                made[unit] = item  # from its first file on: without it the compiler finds no unit
    finally:
        if made:
            ledger.forget(made.keys())
            ledger.write_if_changed(places.records)
            forget_receipts(places.records)
            _write(places.records, _joined(before, made.values()))
    return tuple(made.values())


def _joined(before: Iterable[SetAside], made: Iterable[SetAside]) -> list[SetAside]:
    """One record for each unit; what has failed under its key stays known."""
    old = {item.unit: item for item in before}
    joined = []
    for item in made:
        known = old.pop(item.unit, item).sha256s
        digests = tuple(sorted({*known, *item.sha256s}))
        joined.append(replace(item, sha256s=digests))
    return [*old.values(), *joined]


def unit_files(places: Places, unit: str) -> dict[str, Path]:
    """The files that lie in a live directory under a unit's key, by entry path."""
    place = places.locate(unit)
    if place is None:
        return {}
    above = unit.rpartition("/")[0]
    found = {f"{unit}/{name}": file for name, file in _below(place)}
    for name in names_in(place.parent):
        path, file = f"{above}/{name}", place.parent / name
        if unit_of(path) == unit and file.is_file() and not file.is_symlink():
            found[path] = file
    return {p: f for p, f in found.items() if not is_passed_over(p.split("/")[0], p.split("/")[1:])}


def _below(folder: Path) -> Iterator[tuple[str, Path]]:
    for name in names_in(folder):
        item = folder / name
        if item.is_symlink():
            continue
        if item.is_dir():
            yield from ((f"{name}/{below}", file) for below, file in _below(item))
        elif item.is_file():
            yield name, item


def _fits(places: Places, unit: str) -> bool:
    """Whether the unit's files are kept, and none of them lies in the live directory by now."""
    kept = {path for path, _ in _below(places.records / _FOLDER / _folder_name(unit))}
    return bool(kept) and not (kept & unit_files(places, unit).keys())


def _recall(records: Path, items: Iterable[SetAside]) -> None:
    """Before the files are there: whoever finds them must find out whose they are."""
    ledger = Ledger.read(records)
    for item in items:
        if item.seeded is not None:
            ledger.recall(item.unit, item.seeded)
    ledger.write_if_changed(records)


def _put_back(places: Places, unit: str) -> None:
    kept = places.records / _FOLDER / _folder_name(unit)
    for path in sorted((path for path, _ in _below(kept)), key=seed_order):
        target = places.locate(path)
        if target is not None:
            _move(kept / path, target, places.folder(path) or target.parent)
    shutil.rmtree(kept, ignore_errors=True)


def _move(source: Path, target: Path, via: Path) -> None:
    """Renames; where that leads to another file system, by way of a temporary in `via` beside the
    target, so that the new file is seen when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with new_file(via) as (temporary, _):
            shutil.copy2(source, temporary)
            os.rename(temporary, target)
        os.unlink(source)


def _write(records: Path, items: Sequence[SetAside]) -> None:
    """Writes the records of the newest calls, and removes the files that none of them keeps."""
    calls = list(dict.fromkeys(item.at for item in reversed(items)))[:_MOST_CALLS]
    items = [item for item in items if item.at in calls]
    text = json.dumps({"version": _VERSION, "units": [_to_json(item) for item in items]})
    write_whole(records / _NAME, text.encode())
    kept = set(_worth_keeping(records / _FOLDER, items))
    for name in names_in(records / _FOLDER):
        if name not in kept:
            shutil.rmtree(records / _FOLDER / name, ignore_errors=True)


def _worth_keeping(folder: Path, items: Sequence[SetAside]) -> Iterator[str]:
    """The folders of the newest call, and of the youngest units before as there is room for."""
    newest = {item.at for item in items[-1:]}
    yield from (_folder_name(item.unit) for item in items if item.at in newest)
    older = [item for item in items if item.at not in newest]
    left = _MOST_KEPT_BYTES
    for item in older[::-1][:_MOST_KEPT_UNITS]:
        name = _folder_name(item.unit)
        left -= sum(file.stat().st_size for _, file in _below(folder / name))
        if left < 0:
            return
        yield name


def _folder_name(unit: str) -> str:
    return digest_bytes(unit.encode())[:32]
