"""Receipts: that all files of a set of segments lie in a live directory.

A start that finds its receipt, and every file with the size, modification time and inode written
there, reads neither a manifest nor the ledger. A receipt is only ever a shorter way to what the
long way says: whatever is not as written means the long way.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.digest import digest_bytes, digest_json
from cachesvc.local.whole import write_whole

_VERSION = 5
_FOLDER = "receipts"


@dataclass(frozen=True, slots=True)
class Receipt:
    """`facts` are the writer's own; the rest are columns with one item for each file.

    Columns, not rows: ten thousand small lists would set off collections of garbage, each of
    which walks through all that a process with torch holds.
    """

    facts: dict[str, Any]
    files: list[str]
    sizes: list[int]
    mtimes_ns: list[int]
    inodes: list[int]

    def in_place(self) -> bool:
        """Whether every file lies there as it did when this was written."""
        columns = zip(self.files, self.sizes, self.mtimes_ns, self.inodes, strict=True)
        try:
            for file, size, mtime_ns, inode in columns:
                status = os.stat(file)
                if (
                    status.st_ino != inode
                    or status.st_mtime_ns != mtime_ns
                    or status.st_size != size
                ):
                    return False
        except (OSError, ValueError):
            return False
        return True


def receipt_of(facts: dict[str, Any], files: Iterable[Path]) -> Receipt:
    """A receipt for files as they lie there now. Raises OSError if one is missing."""
    names = [str(file) for file in files]
    found = [os.stat(name) for name in names]
    return Receipt(
        facts=facts,
        files=names,
        sizes=[status.st_size for status in found],
        mtimes_ns=[status.st_mtime_ns for status in found],
        inodes=[status.st_ino for status in found],
    )


def read_receipt(records: Path, scope: object, key: object) -> Receipt | None:
    """The receipt of a scope, or None if there is none for just this key, as it was written."""
    try:
        digest, _, text = _file(records, scope).read_bytes().partition(b"\n")
        if digest != digest_bytes(text).encode():
            return None
        raw = json.loads(text)
        if raw["version"] != _VERSION or raw["key"] != digest_json(key):
            return None
        return Receipt(**raw["receipt"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_receipt(records: Path, scope: object, key: object, receipt: Receipt) -> None:
    """Replaces the receipt of a scope. `scope` and `key` are JSON values."""
    value = {
        "version": _VERSION,
        "key": digest_json(key),
        "receipt": {name: getattr(receipt, name) for name in Receipt.__slots__},
    }
    text = json.dumps(value, separators=(",", ":")).encode()
    write_whole(_file(records, scope), digest_bytes(text).encode() + b"\n" + text)


def forget_receipts(records: Path) -> None:
    """Removes all receipts: the next starts go the long way once."""
    shutil.rmtree(records / _FOLDER, ignore_errors=True)


def _file(records: Path, scope: object) -> Path:
    return records / _FOLDER / f"{digest_json(scope)[:32]}.json"
