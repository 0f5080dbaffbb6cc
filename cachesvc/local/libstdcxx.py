"""The C++ runtime that this process has, or would load, and what it offers."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

from cachesvc.local.machine import Machine

_NAME = "libstdc++.so.6"
_MAPPED = re.compile(r"(/\S.*/libstdc\+\+\.so\.6[.\d]*)$", re.MULTILINE)
_CACHED = re.compile(rb"(/[^\0]+/libstdc\+\+\.so\.6)\0")
# One pattern each: a fixed beginning lets the search skip, four times as fast as an alternative.
_OFFERED = {
    "glibcxx": re.compile(rb"GLIBCXX_(\d+(?:\.\d+)+)\0"),
    "cxxabi": re.compile(rb"CXXABI_(\d+(?:\.\d+)+)\0"),
}
# Class, byte order and machine, by their offsets in an ELF header.
_KIND = (slice(4, 6), slice(18, 20))


def libstdcxx_versions(machine: Machine) -> dict[str, str]:
    """The highest GLIBCXX and CXXABI version on offer, as kinds `glibcxx` and `cxxabi`.

    Empty where no libstdc++ is found. Both series only grow, so the highest says all: "ABI Policy
    and Guidelines" of the libstdc++ manual.
    """
    path = find_libstdcxx(machine)
    return {} if path is None else offered_versions(path)


def find_libstdcxx(machine: Machine) -> Path | None:
    """The library that is mapped already, else the one the dynamic loader would come to first.

    Nothing is loaded: to load the system's library here would keep a conda environment's own,
    newer one out of this process.
    """
    for path in (*_mapped(machine.maps), *_candidates(machine)):
        if path.is_file() and _same_kind(path):
            return path
    return None


def _candidates(machine: Machine) -> Iterator[Path]:
    # A conda interpreter's run path beats LD_LIBRARY_PATH, which beats the loader's cache.
    for prefix in machine.prefixes:
        yield prefix / "lib" / _NAME
    for folder in machine.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield Path(folder, _NAME)
    yield from _cached(machine.loader_cache)
    for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"):
        yield Path(folder, _NAME)


def _mapped(maps: Path) -> list[Path]:
    try:
        found = _MAPPED.findall(maps.read_text(errors="replace"))
    except OSError:
        return []
    return [Path(path) for path in dict.fromkeys(found)]


def _cached(cache: Path) -> list[Path]:
    try:
        found = _CACHED.findall(cache.read_bytes())
    except OSError:
        return []
    return [Path(path.decode(errors="surrogateescape")) for path in dict.fromkeys(found)]


def _same_kind(path: Path) -> bool:
    """Whether the library is for this interpreter's machine, not for 32-bit programs."""
    ours, theirs = _header(Path("/proc/self/exe")), _header(path)
    return theirs[:4] == b"\x7fELF" and all(
        not ours or ours[part] == theirs[part] for part in _KIND
    )


def _header(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(20)
    except OSError:
        return b""


def offered_versions(path: Path) -> dict[str, str]:
    """The highest version of each series that the library at `path` names."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        offered = {kind: pattern.findall(data) for kind, pattern in _OFFERED.items()}
    return {kind: max(names, key=_parts).decode() for kind, names in offered.items() if names}


def _parts(version: bytes) -> list[int]:
    return [int(part) for part in version.split(b".")]
