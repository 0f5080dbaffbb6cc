"""What takes time to find out at each start and seldom changes: remembered on this machine.

Each answer lies under a stamp of what it was made of, and counts for nothing under another one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.local.whole import write_whole

_NAME = "remembered.json"
_known: dict[tuple[Path, str], tuple[str, Any]] = {}


def remembered(folder: Path, name: str, stamp: str | None, find_out: Callable[[], Any]) -> Any:
    """The answer of this name under this stamp; found out, and remembered, if there is none.

    Only a text or bytes are remembered, and nothing without a stamp. A folder that cannot be
    written costs what it costs without.
    """
    if stamp is None:
        return find_out()
    known = _known.get((folder, name))
    if known is None or known[0] != stamp:
        known = stamp, _from_disk(folder / _NAME, name, stamp, find_out)
        _known[folder, name] = known
    return known[1]


def stamp_of(path: str | os.PathLike[str]) -> str | None:
    """What a file's path, size and times come to; None if it is not there.

    A file that is written gets another time of change, which no program can set.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return f"{os.fspath(path)} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _from_disk(file: Path, name: str, stamp: str, find_out: Callable[[], Any]) -> Any:
    rows = _read(file)
    if (answer := _answer(rows.get(name), stamp)) is not None:
        return answer
    answer = find_out()
    if isinstance(answer, bytes | str):
        form = "hex" if isinstance(answer, bytes) else "text"
        text = answer.hex() if isinstance(answer, bytes) else answer
        rows[name] = {"stamp": stamp, form: text}
        with suppress(TccacheError):
            write_whole(file, json.dumps(rows).encode())
    return answer


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _answer(row: Any, stamp: str) -> bytes | str | None:
    """The answer in a row, if it is a whole row with this stamp."""
    if not isinstance(row, dict) or row.get("stamp") != stamp:
        return None
    try:
        return str(row["text"]) if "text" in row else bytes.fromhex(row["hex"])
    except (KeyError, ValueError, TypeError):
        return None
