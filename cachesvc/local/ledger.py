"""The ledger of a live directory: which files were seeded, so that the next start trusts them.

A file whose size, inode and modification time are as recorded is taken to hold the bytes that
were verified when it was seeded. The ledger also remembers who made each seeded unit, and the name
that Triton's directory had: groups hold it, so under another name (moved, or mounted elsewhere)
they are not what they were, though no file changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cachesvc.core.components import Components
from cachesvc.core.manifest import Origin, Unit
from cachesvc.local.layout import is_group, unit_of
from cachesvc.local.whole import read_record, write_whole

_NAME = "ledger.json"
_VERSION = 1


def has_ledger(records: Path) -> bool:
    """Whether anything was ever seeded into the directory with these records."""
    return os.path.lexists(records / _NAME)


class Row(NamedTuple):
    """One seeded file: digest of its entry, and the file's size, mtime (ns) and inode."""

    sha256: str
    size: int
    mtime_ns: int
    inode: int

    def is_at(self, file: Path) -> bool:
        """Whether the file lies there as it was recorded."""
        try:
            status = os.stat(file)
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns, status.st_ino) == self[1:]

    def has_inode_of(self, file: Path) -> bool:
        """Whether it is the very file that was recorded, whatever was written into it since."""
        try:
            return os.stat(file).st_ino == self.inode
        except OSError:
            return False

    def has_date_of(self, file: Path) -> bool:
        """Whether nobody has written the file since, by its modification time."""
        try:
            return os.stat(file).st_mtime_ns == self.mtime_ns
        except OSError:
            return False


def row_of(file: Path, sha256: str) -> Row:
    """The row for a file that lies in place now."""
    status = os.stat(file)
    return Row(sha256, status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class Seeded:
    """All that a ledger knows of one unit: who made it, which keys had signed it, its files."""

    origin: Origin
    signers: frozenset[str] = frozenset()
    rows: tuple[tuple[str, Row], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "origin": _columns(self.origin),
            "signers": sorted(self.signers),
            "rows": dict(self.rows),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Seeded:
        """Raises what is raised for a JSON value of another shape."""
        rows = ((str(path), _row(row)) for path, row in raw["rows"].items())
        return cls(_origin(raw["origin"]), frozenset(map(str, raw["signers"])), tuple(rows))


@dataclass(slots=True)
class Ledger:
    """Rows by entry path; by unit key, origins and the keys that had signed what was brought.

    Changed only under the live directory's lock.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    signers: dict[str, frozenset[str]] = field(default_factory=dict)
    triton: str = ""
    _changed: bool = False

    @classmethod
    def read(cls, records: Path) -> Ledger:
        """The ledger in this folder; empty if there is none or it is not readable as one.

        Files in place are then compared by their digest. Raises TccacheError if it cannot be read
        now: who made what was seeded must not be forgotten.
        """
        data = read_record(records / _NAME)
        try:
            raw = json.loads(data)
            if raw["version"] != _VERSION:
                return cls()
            rows = {path: _row(row) for path, row in raw["rows"].items()}
            table = [_origin(value) for value in raw["origins"]]
            origins = {unit: table[index] for unit, index in raw["units"].items()}
            signed = raw.get("signers", {}).items()  # absent before anything could be signed
            signers = {unit: frozenset(map(str, keys)) for unit, keys in signed}
            return cls(rows, origins, signers, str(raw["triton"]))
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ):
            return cls()

    def settle(self, triton: Path | None) -> None:
        """Says where Triton's directory is; elsewhere than before, no group is trusted unread."""
        if self.triton != str(triton):
            self.rows = {path: row for path, row in self.rows.items() if not is_group(path)}
            self.triton = str(triton)
            self._changed = True

    def note(self, path: str, row: Row) -> None:
        """Records a file."""
        self.rows[path] = row
        self._changed = True

    def note_origins(self, units: Iterable[Unit]) -> None:
        """Records who made these units, where that is not known yet."""
        for unit in units:
            if unit.key not in self.origins:
                self.origins[unit.key] = unit.origin
                self._changed = True

    def note_signers(self, signers: Mapping[str, frozenset[str]]) -> None:
        """Records which keys have signed these units, by key."""
        for unit, keys in signers.items():
            if self.signers.get(unit) != keys:
                self.signers[unit] = keys
                self._changed = True

    def seeded(self, unit: str, paths: Iterable[str]) -> Seeded | None:
        """What is known of a unit with files at these paths; None if it was not seeded."""
        origin = self.origins.get(unit)
        if origin is None:
            return None
        rows = tuple((path, self.rows[path]) for path in paths if path in self.rows)
        return Seeded(origin, self.signers.get(unit, frozenset()), rows)

    def recall(self, unit: str, seeded: Seeded) -> None:
        """Knows of a unit again what was known of it before it was forgotten."""
        self.origins[unit], self.signers[unit] = seeded.origin, seeded.signers
        self.rows |= dict(seeded.rows)
        self._changed = True

    def forget(self, units: Collection[str]) -> None:
        """Knows nothing any more of the units with these keys."""
        gone = [path for path in self.rows if unit_of(path) in units]
        for path in gone:
            del self.rows[path]
        for unit in units:
            self._changed |= self.origins.pop(unit, None) is not None
            self.signers.pop(unit, None)
        self._changed |= bool(gone)

    def write_if_changed(self, records: Path) -> None:
        """Replaces the ledger in this folder in one step, if it says anything new."""
        if not self._changed:
            return
        table = list(dict.fromkeys(self.origins.values()))
        number = {origin: index for index, origin in enumerate(table)}
        text = json.dumps(
            {
                "version": _VERSION,
                "triton": self.triton,
                "rows": self.rows,
                "origins": [_columns(origin) for origin in table],
                "units": {unit: number[origin] for unit, origin in self.origins.items()},
                "signers": {unit: sorted(keys) for unit, keys in self.signers.items()},
            },
            separators=(",", ":"),
        )
        write_whole(records / _NAME, text.encode())


def _row(value: list[Any]) -> Row:
    sha256, size, mtime_ns, inode = value
    return Row(str(sha256), int(size), int(mtime_ns), int(inode))


def _columns(origin: Origin) -> list[Any]:
    return [origin.created, origin.model, dict(origin.context), origin.segment]


def _origin(value: list[Any]) -> Origin:
    created, model, context, segment = value
    components = Components.of({str(name): str(text) for name, text in context.items()})
    return Origin(str(created), str(model), components, None if segment is None else str(segment))
