"""Damage in a live directory: files that are not what was seeded, or that nobody can use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError, TccacheError
from cachesvc.core.paths import MAX_PATH_BYTES
from cachesvc.local.broken import broken, broken_source, is_named_by_content
from cachesvc.local.group import relocate
from cachesvc.local.layout import is_group, is_passed_over, unit_of
from cachesvc.local.ledger import Ledger, Row
from cachesvc.local.places import Places


@dataclass(frozen=True, slots=True)
class Damage:
    """A unit that cannot be trusted any more, and what is wrong with each of its files."""

    unit: str
    problems: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The first problem, and how many more there are."""
        more = len(self.problems) - 1
        return self.problems[0] + (f" and {more} more files" if more else "")


def damaged_units(places: Places) -> tuple[Damage, ...]:
    """Reads every file of the live directory; the units with a file that is damaged.

    A seeded file is damaged if its bytes are not those that were verified, unless a compiler may
    have written it again since, by its date, and it is whole. Any other file is if it can be seen
    to be broken. A unit of which some seeded files are gone is damaged where a reader would look
    for them in vain. Changes nothing and takes no lock: what is being written meanwhile may show as
    damage, which costs one compile. A file that cannot be read is not judged.
    """
    rows = _seeded(places)
    problems: dict[str, list[str]] = {}
    present: set[str] = set()
    for path, file in files_of(places):
        present.add(path)
        if problem := _problem(path, file, rows.get(path)):
            problems.setdefault(unit_of(path), []).append(f"{path} {problem}")
    for path in _missing(rows, present):
        problems.setdefault(unit_of(path), []).append(f"{path} is gone")
    return tuple(Damage(unit, tuple(found)) for unit, found in sorted(problems.items()))


def _seeded(places: Places) -> dict[str, Row]:
    """The rows of the ledger; none while it cannot be read."""
    try:
        return Ledger.read(places.records).rows
    except TccacheError:
        return {}


def files_of(places: Places) -> Iterator[tuple[str, Path]]:
    """Every cache file of the live directory with its entry path; no locks, no temporaries."""
    folders = {folder for _, folder in places.folders}
    for prefix, root in places.folders:
        section, *rest = prefix.split("/")
        yield from _files(root, section, tuple(rest), folders - {root})


def _files(
    folder: Path, section: str, parts: tuple[str, ...], others: set[Path]
) -> Iterator[tuple[str, Path]]:
    try:
        with os.scandir(folder) as found:
            items = sorted(found, key=lambda item: item.name)
    except OSError:
        return
    for item in items:
        below = (*parts, item.name)
        if is_passed_over(section, below) or len("/".join(below)) > MAX_PATH_BYTES:
            continue
        if item.is_dir(follow_symlinks=False):
            if Path(item.path) not in others:
                yield from _files(Path(item.path), section, below, others)
        elif item.is_file(follow_symlinks=False):
            yield "/".join((section, *below)), Path(item.path)


def _problem(path: str, file: Path, row: Row | None) -> str | None:
    try:
        data = file.read_bytes()
    except OSError:
        return None
    if row is None:
        return broken_source(path, data)
    if (reason := broken(path, data)) or _digest(path, data) == row.sha256:
        return reason
    is_damage = is_named_by_content(path) or row.has_date_of(file)
    return "was changed after it was seeded" if is_damage else None


def _digest(path: str, data: bytes) -> str | None:
    """The digest as an entry has it: of a group with bare names. None if it is no group."""
    try:
        return digest_bytes(relocate(data, path) if is_group(path) else data)
    except IntegrityError:
        return None


def content_digest(path: str, file: Path) -> str | None:
    """The digest that an entry with just these bytes has; None if there is none to be had."""
    try:
        return _digest(path, file.read_bytes())
    except OSError:
        return None


def _missing(rows: dict[str, Row], present: set[str]) -> Iterator[str]:
    """Seeded files that are gone though others of their unit are there.

    An entry of an FX graph or of AOTAutograd stands for itself: without it there is one fewer.
    """
    units = {unit_of(path) for path in present}
    for path in rows:
        alone = path.startswith(("inductor/fxgraph/", "inductor/aotautograd/", "megacache/"))
        if path not in present and not alone and unit_of(path) in units:
            yield path
