"""Relocation of Triton groups.

A group file `__grp__NAME.json` maps the names of a kernel's files to absolute paths, so after a
move Triton finds none of them and builds the kernel again. In a pack the paths are bare names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cachesvc.core.errors import IntegrityError
from cachesvc.core.paths import path_issue

MAX_BYTES = 1 << 20
"""No group is larger: it names a dozen files. One is read whole, so a larger one is refused."""

_PATHS = "child_paths"


def relocate(data: bytes, where: str) -> bytes:
    """The group with each child's path replaced by its bare name.

    Raises IntegrityError if the bytes are no group, as a writer that was killed leaves them.
    """
    group = _parse(data, where)
    children = group[_PATHS]
    return _dump({**group, _PATHS: {name: Path(path).name for name, path in children.items()}})


def localise(data: bytes, folder: Path, where: str) -> bytes:
    """The group with each child's bare name replaced by its absolute path in `folder`.

    Raises IntegrityError for bytes that are no group, or a child that is more than a bare name:
    it would point outside the folder.
    """
    group = _parse(data, where)
    children = group[_PATHS]
    for name in children.values():
        if "/" in name or path_issue(f"triton/{name}"):
            raise IntegrityError(f"{where} names a child outside its folder: {name!r:.120}")
    return _dump({**group, _PATHS: {key: str(folder / name) for key, name in children.items()}})


def children(data: bytes, where: str) -> tuple[str, ...]:
    """The bare names of the files that the group lists."""
    return tuple(Path(path).name for path in _parse(data, where)[_PATHS].values())


def without(data: bytes, suffixes: tuple[str, ...], where: str) -> bytes:
    """The group without the children that have one of these suffixes."""
    group = _parse(data, where)
    kept = {name: path for name, path in group[_PATHS].items() if not path.endswith(suffixes)}
    return _dump({**group, _PATHS: kept})


def points_into(data: bytes, folder: Path, where: str) -> bool:
    """Whether the group's paths lead to this folder, under whatever name.

    They lead elsewhere after the folder was copied or moved, and then Triton finds nothing.
    """
    parents = {os.path.dirname(path) for path in _parse(data, where)[_PATHS].values()}
    return all(_is_same(parent, folder) for parent in parents)


def _is_same(path: str, folder: Path) -> bool:
    try:
        return path == str(folder) or os.path.samefile(path, folder)
    except (OSError, ValueError):
        return False


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        group = json.loads(data)
        paths = group[_PATHS]
        if all(isinstance(path, str) for path in paths.values()):
            return dict(group)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    raise IntegrityError(f"{where} is not a Triton group")


def _dump(group: dict[str, Any]) -> bytes:
    return json.dumps(group).encode()
