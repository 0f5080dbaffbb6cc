"""Where the sections of entry paths lie on this machine's disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RECORDS = ".tccache"
"""Folder in a live directory for this library's own records; a dot-file, so never packed."""


@dataclass(frozen=True, slots=True)
class Places:
    """Directories by the prefix of the entry paths that they hold.

    `root` is where the ledger and the lock of these directories lie. A prefix is a section, or
    `extra/NAME` for a directory of another program.
    """

    root: Path
    folders: tuple[tuple[str, Path], ...]

    def locate(self, path: str) -> Path | None:
        """The file for an entry path, or None if no directory was given for it."""
        for prefix, folder in self.folders:
            if path.startswith(prefix + "/"):
                return folder / path[len(prefix) + 1 :]
        return None

    def folder(self, path: str) -> Path | None:
        """The directory that entries of this path's prefix go to."""
        for prefix, folder in self.folders:
            if path.startswith(prefix + "/"):
                return folder
        return None

    @property
    def records(self) -> Path:
        return self.root / RECORDS


def under(root: Path) -> Places:
    """The places of a live directory that this library lays out itself."""
    names = ("inductor", "triton", "megacache", "aot", "extra")
    return Places(root, tuple((name, root / name) for name in names))
