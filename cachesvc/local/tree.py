"""Cache trees on disk, read: files into units."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.errors import IntegrityError, UsageError
from cachesvc.core.paths import MAX_PATH_BYTES, path_issue
from cachesvc.local.group import children, relocate
from cachesvc.local.layout import entry_parts, is_group, is_passed_over, unit_of
from cachesvc.local.megafile import Artifact

KERNEL_SUFFIXES = (".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco", ".spv")
"""What the files of a kernel end with, which Triton finds by their group alone."""

Home = tuple[Path, tuple[str, ...]]
"""A tree, and the folders in it that show in no entry path: each unit comes from one home."""

Copies = dict[Home, dict[str, "FoundFile"]]
"""The files of one unit by entry path, for each home that has some."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file of a tree: its entry path, where it lies, and its status when it was seen.

    `content` holds the bytes to pack where they are not the file's own (a relocated group, an
    artifact of a mega-cache file).
    """

    path: str
    source: Path
    size: int
    mtime_ns: int = 0
    inode: int = 0
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class FoundUnit:
    """The files of one unit, in order of their paths.

    `left_out` are files that lie beside them and are not packed.
    """

    key: str
    files: tuple[FoundFile, ...]
    left_out: tuple[FoundFile, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Scan:
    """The units of one or more trees, and how many files were passed over, by reason."""

    units: tuple[FoundUnit, ...]
    skipped: tuple[tuple[str, int], ...] = ()

    @property
    def files(self) -> int:
        return sum(len(unit.files) for unit in self.units)

    @property
    def size(self) -> int:
        """Bytes of all files as they will be packed."""
        return sum(unit.size for unit in self.units)


def scan(trees: Iterable[tuple[str, Path]], artifacts: Iterable[Artifact] = ()) -> Scan:
    """The units of the directories, each given with the entry-path prefix it stands for.

    A unit that comes twice (one Triton kernel under two device folders) is taken whole from the
    place that has most of it, never put together from both. Locks, dot-files, temporaries, links
    and special files are passed over and counted; so are files that this user cannot read, with
    their unit, and kernels whose group is missing or not whole, as a killed writer leaves them:
    none can be hit, and reading half a group fails in every process that tries. Raises UsageError
    for a directory that cannot be read.
    """
    skipped: Counter[str] = Counter()
    units = []
    found = _group_units(_Walk(tuple(trees), skipped).files(), artifacts)
    for key, copies in sorted(found.items()):
        if files := _best(copies, skipped):
            units.append(FoundUnit(key, tuple(files[path] for path in sorted(files))))
    return Scan(tuple(units), tuple(sorted(skipped.items())))


def _group_units(
    files: Iterable[tuple[Home, FoundFile]], artifacts: Iterable[Artifact]
) -> dict[str, Copies]:
    units: dict[str, Copies] = {}
    nowhere: Home = (Path(), ())
    for home, file in (*files, *((nowhere, _artifact_file(item)) for item in artifacts)):
        copies = units.setdefault(unit_of(file.path), {})
        copies.setdefault(home, {}).setdefault(file.path, file)
    return units


def _artifact_file(artifact: Artifact) -> FoundFile:
    content = artifact.to_bytes()
    return FoundFile(artifact.path, Path(), len(content), content=content)


@dataclass(frozen=True, slots=True)
class _Walk:
    """One reading of some trees; `skipped` counts what is passed over."""

    trees: tuple[tuple[str, Path], ...]
    skipped: Counter[str]

    def files(self) -> Iterator[tuple[Home, FoundFile]]:
        for prefix, root in self.trees:
            if not (os.path.isdir(root) and os.access(root, os.R_OK | os.X_OK)):
                raise UsageError(
                    f"{root} is not a directory that can be read: give the directory that holds"
                    " the cache"
                )
            section, *rest = prefix.split("/")
            yield from self._folder(root, root, section, tuple(rest))

    def _folder(
        self, folder: Path, root: Path, section: str, parts: tuple[str, ...]
    ) -> Iterator[tuple[Home, FoundFile]]:
        for item in self._items(folder):
            below = (*parts, item.name)
            if is_passed_over(section, below):
                self.skipped["temporary"] += 1
            elif len("/".join((section, *below))) > MAX_PATH_BYTES:
                self.skipped["name that cannot be stored"] += 1
            elif item.is_dir(follow_symlinks=False):
                # A tree within another one is read once, as itself.
                if all(Path(item.path) != other for _, other in self.trees):
                    yield from self._folder(Path(item.path), root, section, below)
            else:
                entry = entry_parts(section, below)
                home = (root, below[: len(below) + 1 - len(entry)])
                yield from ((home, file) for file in self._file(item, "/".join(entry)))

    def _items(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as items:
                return sorted(items, key=lambda item: item.name)
        except (FileNotFoundError, NotADirectoryError):
            self.skipped["vanished"] += 1
        except OSError:
            self.skipped["unreadable"] += 1
        return []

    def _file(self, item: os.DirEntry[str], path: str) -> Iterator[FoundFile]:
        try:
            status = item.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                self.skipped["link or special file"] += 1
            elif path_issue(path):
                self.skipped["name that cannot be stored"] += 1
            else:
                yield _found(path, Path(item.path), status)
        except FileNotFoundError:
            self.skipped["vanished"] += 1
        except OSError:
            self.skipped["unreadable"] += 1


def _found(path: str, source: Path, status: os.stat_result) -> FoundFile:
    content = _relocated(source) if is_group(path) else None
    size = status.st_size if content is None else len(content)
    return FoundFile(path, source, size, status.st_mtime_ns, status.st_ino, content)


def _relocated(source: Path) -> bytes:
    """The group with bare names; empty if the file is no group, which no real one is."""
    try:
        return relocate(source.read_bytes(), str(source))
    except IntegrityError:
        return b""


def _best(copies: Copies, skipped: Counter[str]) -> dict[str, FoundFile] | None:
    """The copy of a unit that has most files, of those that can be used."""
    usable = []
    for files in copies.values():
        if not all(file.content is not None or _can_read(file) for file in files.values()):
            skipped["unreadable"] += len(files)
        elif not _is_whole(files):
            skipped["part of a broken kernel"] += len(files)
        else:
            usable.append(files)
    return max(usable, key=len, default=None)


def _can_read(file: FoundFile) -> bool:
    return os.access(file.source, os.R_OK)


def _is_whole(files: dict[str, FoundFile]) -> bool:
    """Whether a unit can be used: each kernel has its group, each group the files it lists."""
    groups = [file for path, file in files.items() if is_group(path)]
    if not groups:
        return not any(
            path.startswith("triton/") and path.endswith(KERNEL_SUFFIXES) for path in files
        )
    names = {path.rpartition("/")[2] for path in files}
    return all(_group_is_whole(group, names) for group in groups)


def _group_is_whole(group: FoundFile, names: set[str]) -> bool:
    listed = set(children(group.content, group.path)) if group.content else set()
    return bool(listed) and names >= listed
