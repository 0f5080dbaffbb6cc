"""Cache trees on disk, read: files into units."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.errors import IntegrityError, UsageError
from cachesvc.core.paths import path_issue
from cachesvc.local.group import children, relocate
from cachesvc.local.layout import entry_parts, is_group, is_temporary, unit_key
from cachesvc.local.megafile import Artifact

_KERNEL_SUFFIXES = (".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco", ".spv")


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
    """The files of one unit, in order of their paths."""

    key: str
    files: tuple[FoundFile, ...]

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

    A file that comes twice (one Triton kernel under two device folders) is taken once. Locks,
    dot-files, temporaries, links and special files are passed over and counted; so are kernels
    whose group is missing or not whole, as a killed writer leaves them: none can be hit, and
    reading half a group fails in every process that tries. Raises UsageError for a directory
    that does not exist.
    """
    skipped: Counter[str] = Counter()
    units: dict[str, dict[str, FoundFile]] = {}
    found = (file for prefix, root in trees for file in _files(prefix, root, skipped))
    for file in (*found, *map(_artifact_file, artifacts)):
        units.setdefault(unit_key(file.path.split("/")), {}).setdefault(file.path, file)
    whole = (
        FoundUnit(key, tuple(files[path] for path in sorted(files)))
        for key, files in sorted(units.items())
        if _is_whole(files, skipped)
    )
    return Scan(tuple(whole), tuple(sorted(skipped.items())))


def _artifact_file(artifact: Artifact) -> FoundFile:
    content = artifact.to_bytes()
    return FoundFile(f"{artifact.unit}/artifact", Path(), len(content), content=content)


def _files(prefix: str, root: Path, skipped: Counter[str]) -> Iterator[FoundFile]:
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory: give the directory that holds the cache")
    section, *rest = prefix.split("/")
    yield from _walk(root, section, tuple(rest), skipped)


def _walk(
    folder: Path, section: str, parts: tuple[str, ...], skipped: Counter[str]
) -> Iterator[FoundFile]:
    try:
        with os.scandir(folder) as items:
            ordered = sorted(items, key=lambda item: item.name)
    except FileNotFoundError:
        return
    for item in ordered:
        if is_temporary(item.name):
            skipped["temporary"] += 1
        elif item.is_dir(follow_symlinks=False):
            yield from _walk(Path(item.path), section, (*parts, item.name), skipped)
        else:
            yield from _file(item, entry_parts(section, (*parts, item.name)), skipped)


def _file(
    item: os.DirEntry[str], parts: tuple[str, ...], skipped: Counter[str]
) -> Iterator[FoundFile]:
    path = "/".join(parts)
    try:
        status = item.stat(follow_symlinks=False)
        content = _relocated(item) if parts[0] == "triton" and is_group(item.name) else None
    except FileNotFoundError:
        skipped["vanished"] += 1
        return
    if not stat.S_ISREG(status.st_mode):
        skipped["link or special file"] += 1
    elif path_issue(path):
        skipped["name that cannot be stored"] += 1
    else:
        yield _found(path, item, status, content)


def _relocated(item: os.DirEntry[str]) -> bytes:
    """The group with bare names; empty if the file is no group, which no real one is."""
    try:
        return relocate(Path(item.path).read_bytes(), item.path)
    except IntegrityError:
        return b""


def _found(
    path: str, item: os.DirEntry[str], status: os.stat_result, content: bytes | None
) -> FoundFile:
    size = status.st_size if content is None else len(content)
    return FoundFile(path, Path(item.path), size, status.st_mtime_ns, status.st_ino, content)


def _is_whole(files: dict[str, FoundFile], skipped: Counter[str]) -> bool:
    """Whether a unit can be used: each kernel has its group, each group the files it lists."""
    by_name = {path.rpartition("/")[2]: file for path, file in files.items()}
    if not next(iter(files)).startswith("triton/"):
        return True
    groups = [file for name, file in by_name.items() if is_group(name)]
    if all(_group_is_whole(file, by_name) for file in groups) and (
        groups or not any(name.endswith(_KERNEL_SUFFIXES) for name in by_name)
    ):
        return True
    skipped["part of a broken kernel"] += len(files)
    return False


def _group_is_whole(group: FoundFile, by_name: dict[str, FoundFile]) -> bool:
    content = group.content or b""
    return bool(content) and by_name.keys() >= set(children(content, group.path))
