"""Whether a live directory is sound: all that `damage` sees, what makes a kernel no hit, and files
of others; and the repair, which removes whole units, so that the next start brings them again.

The order of a repair: what makes a hit goes first, files go before the records that speak of them.
A repair that is killed leaves units of which a part is gone, and the next one finds them.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cachesvc.core.errors import IntegrityError
from cachesvc.core.ownership import anothers
from cachesvc.local.broken import is_native
from cachesvc.local.damage import Damage, content_digest, damaged_units, files_of
from cachesvc.local.group import children, localise, points_into, relocate
from cachesvc.local.in_use import is_in_use
from cachesvc.local.layout import is_group, seed_order, unit_key, unit_of
from cachesvc.local.ledger import Ledger, Row, row_of
from cachesvc.local.places import Places
from cachesvc.local.quarantine import unit_files
from cachesvc.local.receipt import forget_receipts
from cachesvc.local.tree import KERNEL_SUFFIXES
from cachesvc.local.walk import below, names_in
from cachesvc.local.whole import write_whole

_COMPILE_S = 600.0
_LONG_S = 86_400.0

Problems = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Soundness:
    """What a look at a live directory has found.

    `damaged` are units that nobody can use, or nobody should; `moved` are the entry paths of
    groups whose paths lead to where the directory was before; `changed` are those of seeded files
    that hold other bytes now, which a compiler may have written.
    """

    units: int
    files: int
    bytes: int
    damaged: tuple[Damage, ...] = ()
    moved: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def look(places: Places, *, is_shared: bool) -> Soundness:
    """Reads every file of a live directory and changes nothing; what is found twice is wrong.

    Files of a kernel without their group are a compile under way, which removing them would break,
    for ten minutes; for a day where a process holds the directory. With `is_shared`, files of other
    users are as good as one's own.
    """
    found = _look(places, is_shared=is_shared)
    if not found.damaged:
        return found
    again = {item.unit: item for item in _look(places, is_shared=is_shared).damaged}
    damaged = tuple(again[item.unit] for item in found.damaged if item.unit in again)
    return replace(found, damaged=damaged)


def remove_units(places: Places, units: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Removes units, under the live directory's lock: those that are gone, and what is left.

    Nothing speaks of them any more in the ledger and in receipts, so a start that finds them in a
    bundle brings them again. Raises TccacheError if the records cannot be written.
    """
    failed: list[str] = []
    for unit in units:
        files = {**unit_files(places, unit), **_links(places, unit)}
        for path in sorted(files, key=seed_order, reverse=True):
            try:
                os.unlink(files[path])
            except OSError as error:
                failed.append(f"{files[path]} cannot be removed: {error.strerror}")
        _remove_empty(places, unit)
    ledger = Ledger.read(places.records)
    ledger.forget(units)
    ledger.write_if_changed(places.records)
    forget_receipts(places.records)
    return tuple(unit for unit in units if not unit_files(places, unit)), tuple(failed)


def put_right(places: Places, paths: Iterable[str]) -> tuple[str, ...]:
    """Makes the paths of groups lead to where they lie, under the lock; the ones that now do."""
    ledger = Ledger.read(places.records)
    done = []
    for path in paths:
        file = places.locate(path)
        if file is None:
            continue
        with suppress(OSError, IntegrityError):
            write_whole(file, localise(relocate(file.read_bytes(), path), file.parent, path))
            done.append(path)
            if row := ledger.rows.get(path):
                ledger.note(path, row_of(file, row.sha256))
    ledger.write_if_changed(places.records)
    return tuple(done)


def _look(places: Places, *, is_shared: bool) -> Soundness:
    units: dict[str, dict[str, Path]] = defaultdict(dict)
    for path, file in files_of(places):
        units[unit_of(path)][path] = file
    problems: Problems = defaultdict(list)
    for damage in damaged_units(places):
        problems[damage.unit] += damage.problems
    rows = Ledger.read(places.records).rows
    since_s = time.time() - (_LONG_S if is_in_use(places) else _COMPILE_S)
    moved = []
    for unit, files in units.items():
        if not unit.startswith("triton/"):
            continue
        if _is_under_way(files, rows, since_s):
            problems.pop(unit, None)
        elif unit not in problems:
            problems[unit] += _in_kernel(files)
            moved += [path for path in files if is_group(path) and _leads_elsewhere(path, files)]
    changed = tuple(_changed(places, rows, problems))
    for path in changed:
        if _is_no_compilers(path, places, rows[path]):
            problems[unit_of(path)].append(f"{path} was changed after it was seeded")
    if not is_shared:
        for unit, problem in _of_others(places):
            problems[unit].append(problem)
    sizes = [_size(file) for files in units.values() for file in files.values()]
    damaged = (Damage(unit, tuple(found)) for unit, found in sorted(problems.items()) if found)
    return Soundness(
        units=len(units),
        files=len(sizes),
        bytes=sum(sizes),
        damaged=tuple(damaged),
        moved=tuple(sorted(moved)),
        changed=tuple(sorted(path for path in changed if not problems.get(unit_of(path)))),
    )


def _changed(places: Places, rows: Mapping[str, Row], problems: Problems) -> Iterator[str]:
    for path, row in rows.items():
        file = places.locate(path)
        if file is None or problems.get(unit_of(path)) or row.is_at(file):
            continue
        if content_digest(path, file) not in {None, row.sha256}:
            yield path


def _is_no_compilers(path: str, places: Places, row: Row) -> bool:
    """Whether no compiler can have written the bytes that lie there now.

    None writes functions or artifacts, and a linker makes a new file: one that was written over
    where it lay is damage.
    """
    if path.startswith(("aot/", "megacache/")):
        return True
    file = places.locate(path)
    return file is not None and is_native(path) and row.has_inode_of(file)


def _is_under_way(files: Mapping[str, Path], rows: Mapping[str, Row], since_s: float) -> bool:
    """Whether a compiler may be at work on a kernel: its first files come long before its group."""
    return _lacks_group(files) and any(
        not ((row := rows.get(path)) and row.has_date_of(file)) and _date(file) > since_s
        for path, file in files.items()
    )


def _lacks_group(files: Mapping[str, Path]) -> bool:
    """Whether there is a kernel, and nothing that lists its files; a launcher needs none."""
    return any(path.endswith(KERNEL_SUFFIXES) for path in files) and not any(map(is_group, files))


def _in_kernel(files: dict[str, Path]) -> Iterator[str]:
    """Why Triton finds no kernel here: a group that lists what is not there, or none at all."""
    groups = [path for path in files if is_group(path)]
    names = {path.rpartition("/")[2] for path in files}
    for path in groups:
        try:
            missing = sorted(set(children(files[path].read_bytes(), path)) - names)
        except OSError:
            continue
        except IntegrityError:
            yield f"{path} is no Triton group"
            continue
        if missing:
            yield f"{path} lists {missing[0]}, which is not there"
    if _lacks_group(files):
        yield f"{min(files)} is in no group, so Triton does not find it"


def _leads_elsewhere(path: str, files: dict[str, Path]) -> bool:
    try:
        return not points_into(files[path].read_bytes(), files[path].parent, path)
    except (OSError, IntegrityError):
        return False


def _of_others(places: Places) -> Iterator[tuple[str, str]]:
    """What others have made, each with its unit."""
    for prefix, folder in places.folders:
        for path, status in below(folder):
            reason = anothers(status)
            if reason is not None and path != str(folder):
                parts = Path(prefix, os.path.relpath(path, folder)).parts
                yield unit_key(parts), f"{path}: {reason}"


def _links(places: Places, unit: str) -> dict[str, Path]:
    """Links in the place of a unit, or of a file of it; in a cache there are none."""
    place = places.locate(unit)
    if place is None:
        return {}
    above = unit.rpartition("/")[0]
    beside = (f"{above}/{name}" for name in names_in(place.parent))
    found = {path: place.parent / Path(path).name for path in beside if unit_of(path) == unit}
    found |= {f"{unit}/{name}": place / name for name in names_in(place)}
    return {path: file for path, file in found.items() if file.is_symlink()}


def _remove_empty(places: Places, unit: str) -> None:
    """Removes the unit's own folder, if nothing lies in it any more."""
    folder = places.locate(unit)
    if folder is not None:
        with suppress(OSError):
            os.rmdir(folder)


def _date(file: Path) -> float:
    try:
        return os.lstat(file).st_mtime
    except OSError:
        return 0.0


def _size(file: Path) -> int:
    try:
        return os.lstat(file).st_size
    except OSError:
        return 0
