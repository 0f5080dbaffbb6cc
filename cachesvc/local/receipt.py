"""Receipts: that all files of a set of segments lie in a live directory.

A start that finds its receipt, and every file with the size, modification time and inode written
there, reads neither a manifest nor the ledger. A receipt is only ever a shorter way to what the
long way says: whatever is not as written means the long way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.digest import digest_json
from cachesvc.local.whole import write_whole

_VERSION = 1
_FOLDER = "receipts"


@dataclass(frozen=True, slots=True)
class Receipt:
    """`facts` are the writer's own; `rows` are (file, size, mtime in ns, inode)."""

    facts: dict[str, Any]
    rows: tuple[tuple[str, int, int, int], ...]

    def in_place(self) -> bool:
        """Whether every file lies there as it did when this was written."""
        try:
            for file, size, mtime_ns, inode in self.rows:
                status = os.stat(file)
                if (status.st_size, status.st_mtime_ns, status.st_ino) != (size, mtime_ns, inode):
                    return False
        except OSError:
            return False
        return True


def receipt_of(facts: dict[str, Any], files: Iterable[Path]) -> Receipt:
    """A receipt for files as they lie there now. Raises OSError if one is missing."""
    return Receipt(facts, tuple(_row(str(file)) for file in files))


def _row(file: str) -> tuple[str, int, int, int]:
    status = os.stat(file)
    return (file, status.st_size, status.st_mtime_ns, status.st_ino)


def read_receipt(records: Path, scope: object, key: object) -> Receipt | None:
    """The receipt of a scope, or None if there is none for just this key."""
    try:
        raw = json.loads(_file(records, scope).read_bytes())
        if raw["version"] != _VERSION or raw["key"] != digest_json(key):
            return None
        return Receipt(dict(raw["facts"]), tuple(map(tuple, raw["rows"])))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_receipt(records: Path, scope: object, key: object, receipt: Receipt) -> None:
    """Replaces the receipt of a scope. `scope` and `key` are JSON values."""
    value = {
        "version": _VERSION,
        "key": digest_json(key),
        "facts": receipt.facts,
        "rows": receipt.rows,
    }
    write_whole(_file(records, scope), json.dumps(value, separators=(",", ":")).encode())


def _file(records: Path, scope: object) -> Path:
    return records / _FOLDER / f"{digest_json(scope)[:32]}.json"
