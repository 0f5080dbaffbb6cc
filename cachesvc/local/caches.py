"""Caches of other compilers on this machine, which travel beside torch.compile's own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.finding import Finding
from cachesvc.core.temporary import temporary_folder

_MOST_FILES = 20_000
_LONG_BUILD_S = 3600.0


@dataclass(frozen=True, slots=True)
class OtherCache:
    """A cache that some other program keeps.

    `variables` move it, the first that is set counts, and `below` is where it then lies in there;
    without any it is at `default`, whose `~`, `{cache}` and `{tmp}` are the user's. `expands` is
    whether the program reads a `~` in them as the user's home.
    """

    name: str
    program: str
    variables: tuple[str, ...]
    default: str
    below: str = ""
    expands: bool = False

    def folder(self, environ: Mapping[str, str]) -> Path | None:
        """Where it lies under these environment variables; None where nobody has a home, or no
        temporary directory."""
        home = environ.get("HOME", "")
        for name in self.variables:
            if environ.get(name):
                return Path(self._expanded(environ[name], home)).absolute() / self.below
        if "{tmp}" in self.default:
            temporary = temporary_folder()
            own = f"{temporary}/{environ.get('USER', '')}"
            return None if temporary is None else Path(self.default.format(tmp=own))
        if not home:
            return None
        cache = self._expanded(environ.get("XDG_CACHE_HOME") or f"{home}/.cache", home)
        return Path(self.default.replace("~", home).format(cache=cache))

    def _expanded(self, path: str, home: str) -> str:
        own = self.expands and home and path.partition("/")[0] == "~"
        return f"{home}{path[1:]}" if own else path


CACHES = (
    OtherCache("vllm", "vLLM", ("VLLM_CACHE_ROOT",), "{cache}/vllm", expands=True),
    OtherCache(
        "flashinfer",
        "FlashInfer",
        ("FLASHINFER_WORKSPACE_BASE",),
        "~/.cache/flashinfer",
        ".cache/flashinfer",
    ),
    OtherCache("deep_gemm", "DeepGEMM", ("DG_JIT_CACHE_DIR", "DG_CACHE_DIR"), "~/.deep_gemm"),
    OtherCache("tilelang", "TileLang", ("TILELANG_CACHE_DIR",), "~/.tilelang/cache"),
    OtherCache("cute", "CuTe DSL", ("CUTE_DSL_CACHE_DIR",), "{tmp}/cutlass_python_cache"),
    OtherCache("cuda", "the CUDA driver", ("CUDA_CACHE_PATH",), "~/.nv/ComputeCache"),
    OtherCache(
        "torch_extensions",
        "torch.utils.cpp_extension",
        ("TORCH_EXTENSIONS_DIR",),
        "{cache}/torch_extensions",
    ),
)


@dataclass(frozen=True, slots=True)
class FoundCache:
    """A cache that is there: its files and bytes, up to a number of files; `more` if beyond it."""

    cache: OtherCache
    folder: Path
    files: int
    bytes: int
    more: bool

    @property
    def finding(self) -> Finding:
        least = "more than " if self.more else ""
        return Finding(
            "other cache",
            "hint",
            f"{self.cache.program} keeps {least}{self.files} files here, {least}"
            f"{self.bytes / 1e6:.1f} MB, which no bundle holds by itself",
            where=str(self.folder),
            cure=f"it travels with --extra {self.cache.name}={self.folder} of push, pull and run",
        )


def other_caches(environ: Mapping[str, str]) -> Iterator[FoundCache]:
    """The caches of other programs that hold something on this machine."""
    for cache in CACHES:
        folder = cache.folder(environ)
        if folder is None:
            continue
        files, size, more = _measured(folder)
        if files:
            yield FoundCache(cache, folder, files, size, more)


def _measured(folder: Path) -> tuple[int, int, bool]:
    """Files and bytes below a folder, and whether there are more than were counted."""
    files = size = 0
    for number, (place, _, names) in enumerate(os.walk(folder)):
        if number == _MOST_FILES:
            return files, size, True
        for name in names:
            if files == _MOST_FILES:
                return files, size, True
            try:
                size += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
            files += 1
    return files, size, False


def left_locks(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Lock files of C++ extensions: the file itself is the lock, so one left behind hangs all.

    It is a disease where nobody here has it open and it is older than a long build; else a build
    may be under way.
    """
    cache = next(item for item in CACHES if item.name == "torch_extensions")
    folder = cache.folder(environ)
    for lock in sorted(_locks(folder)) if folder else ():
        yield Finding(
            "lock file",
            "disease" if _is_old(lock) and not _is_open(lock) else "hint",
            "an extension is being built here, or its build was killed: then every process that"
            " wants it waits for ever",
            where=str(lock),
            cure="remove the file if no build is under way",
        )


def _locks(folder: Path) -> Iterator[Path]:
    """The locks of the extensions in a folder, or in its folders for versions of Python."""
    yield from folder.glob("*/lock")
    yield from folder.glob("*/*/lock")


def _is_old(lock: Path) -> bool:
    try:
        return time.time() - lock.stat().st_mtime > _LONG_BUILD_S
    except OSError:  # its build has ended meanwhile
        return False


def _is_open(lock: Path) -> bool:
    """Whether a process of this machine has the file open, as the one that builds has."""
    real = os.path.realpath(lock)
    return any(_leads_to(link, real) for link in Path("/proc").glob("[0-9]*/fd/*"))


def _leads_to(link: Path, path: str) -> bool:
    try:
        return os.readlink(link) == path
    except OSError:  # another user's, or closed meanwhile
        return False
