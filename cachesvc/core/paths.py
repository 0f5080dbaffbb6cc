"""Entry paths: relative POSIX paths that can name nothing outside the directory they go to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

from cachesvc.core.spelled import HIDDEN

Section = Literal["inductor", "triton", "megacache", "aot", "extra"]
SECTIONS: tuple[Section, ...] = get_args(Section)

MAX_PART_BYTES = 255
MAX_PATH_BYTES = 1024
# A part that starts with a dot is never packed (temporary and hidden files), so "." and ".." and
# this library's own records in a live directory are all refused by one rule.
_PLAIN = re.compile(
    r"(?:{})(?:/[A-Za-z0-9_~+=@,%-][A-Za-z0-9._~+=@,%-]{{0,254}}){{1,32}}".format(
        "|".join(SECTIONS)
    ),
    re.ASCII,
)
_FORBIDDEN = re.compile(rf"[{HIDDEN}\\]")


def path_issue(path: str) -> str | None:
    """What is wrong with an entry path, or None.

    A path is at least two parts joined by `/`; the first is a section; no part is empty, starts
    with a dot, is longer than 255 bytes or holds a backslash, a control character or another one
    that changes how a line is shown.
    """
    if _PLAIN.fullmatch(path) and len(path) <= MAX_PATH_BYTES:
        return None
    return _careful_issue(path)


def _careful_issue(path: str) -> str | None:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if _FORBIDDEN.search(path):
        return "holds a control character or a backslash"
    parts = path.split("/")
    if parts[0] not in SECTIONS:
        return f"does not begin with a section ({', '.join(SECTIONS)})"
    if len(parts) < 2:
        return "names no file below its section"
    return next(filter(None, map(_part_issue, parts)), None)


def _part_issue(part: str) -> str | None:
    if not part:
        return "has an empty part"
    if part.startswith("."):
        return "has a part that starts with a dot"
    if len(part.encode()) > MAX_PART_BYTES:
        return f"has a part longer than {MAX_PART_BYTES} bytes"
    return None


def folders_of(paths: Iterable[str]) -> set[str]:
    """Every folder that lies above one of the paths."""
    found: set[str] = set()
    for folder in {path.rpartition("/")[0] for path in paths}:
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def belongs(path: str, unit: str) -> bool:
    """Whether an entry path lies in the unit of that key: the key itself, below it, or a suffix."""
    return path.startswith(unit) and (len(path) == len(unit) or path[len(unit)] in "./")
