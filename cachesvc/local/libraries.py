"""What a native library needs of a host, read off its ELF file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cachesvc.core.errors import IntegrityError
from cachesvc.core.requirement import Requirement
from cachesvc.local.cpu import read_isa
from cachesvc.local.instructions import features_used
from cachesvc.local.machine import Machine

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_SERIES = re.compile(r"(GLIBCXX|GLIBC|CXXABI)_(.+)", re.DOTALL)
_VERSION = re.compile(r"[A-Za-z0-9._-]{1,64}")  # all that a manifest can hold
_NUMBERS = re.compile(r"\d+(\.\d+)*")
# glibc's own marks without a number. DT_RELR came with glibc 2.36.
_NAMED_VERSIONS = {"ABI_DT_RELR": "2.36"}
_ARCHES = {
    "EM_X86_64": "x86_64",
    "EM_AARCH64": "aarch64",
    "EM_PPC64": "ppc64le",
    "EM_RISCV": "riscv64",
    "EM_S390": "s390x",
}
# Code for a GPU needs what the address says (device, capability), nothing of the CPU.
_GPU_CODE = frozenset({"EM_CUDA", "EM_AMDGPU"})
# Services of the kernel that /proc/cpuinfo lists among the features; no code is compiled for them.
_NOT_INSTRUCTIONS = frozenset({"cpuid", "evtstrm"})
_EXECUTABLE = 0x4
# A library of Inductor has some 30 sections and 20 versions; a damaged count would loop for hours.
_MOST_PARTS = 4096


def read_requirements(
    library: bytes | Path, *, name: str | None = None, machine: Machine | None = None
) -> tuple[Requirement, ...]:
    """What the native library needs: CPU features, glibc, libstdc++. In order, without repeats.

    `name` stands for the library in errors. `machine` is the one that built it. Code that cannot
    be decoded (any but x86-64) is taken to need every feature of the CPU that built it; if that
    is of another kind than the code, the result is a requirement that no host meets.
    Raises IntegrityError if this is not a whole ELF file, OSError if a path cannot be read.
    """
    data = library if isinstance(library, bytes) else library.read_bytes()
    name = name or (str(library) if isinstance(library, Path) else "the library")
    if data[:4] != b"\x7fELF":
        raise IntegrityError(f"{name} is not a native library: it has no ELF header")
    from elftools.elf.elffile import ELFFile

    try:
        found = set(_read(ELFFile(io.BytesIO(data)), data, machine or Machine()))
    except Exception as error:
        # The parser answers damage with whatever came of it: struct, index, value, decode errors.
        raise IntegrityError(f"{name} is a damaged native library: {error}") from error
    return tuple(sorted(found))


def _read(elf: ELFFile, data: bytes, machine: Machine) -> Iterator[Requirement]:
    if not 0 < elf.num_sections() <= _MOST_PARTS:
        raise ValueError(f"{elf.num_sections()} sections")
    if elf["e_machine"] in _GPU_CODE:
        return
    yield from _lowest_versions(_versions_needed(elf))
    for feature in _isa(elf, data, machine):
        yield Requirement("isa", feature)


def _versions_needed(elf: ELFFile) -> Iterator[str]:
    """The symbol versions that the dynamic loader will look for: GLIBC_2.14, CXXABI_1.3.9."""
    from elftools.elf.gnuversions import GNUVerNeedSection

    left = _MOST_PARTS
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for version in versions:
                    left -= 1
                    if left < 0:
                        raise ValueError("too many symbol versions")
                    yield version.name


def _lowest_versions(needed: Iterable[str]) -> Iterator[Requirement]:
    """For each series the highest version needed, and every version that has no number."""
    highest: dict[str, str] = {}
    for match in filter(None, map(_SERIES.fullmatch, needed)):
        kind = match[1].lower()
        version = _NAMED_VERSIONS.get(match[2], match[2])
        if not _VERSION.fullmatch(version):
            raise ValueError(f"a symbol version {version!r:.80}")
        if not _NUMBERS.fullmatch(version):
            yield Requirement(kind, version)
        elif kind not in highest or _parts(version) > _parts(highest[kind]):
            highest[kind] = version
    for kind, version in highest.items():
        yield Requirement(kind, version)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _isa(elf: ELFFile, data: bytes, machine: Machine) -> Iterable[str]:
    if elf["e_machine"] == "EM_X86_64":
        try:
            return features_used(_code(elf, data))
        except ImportError:
            # iced-x86 is installed on x86-64 only.
            pass
    arch = _ARCHES.get(elf["e_machine"], str(elf["e_machine"]))
    features = read_isa(machine) - _NOT_INSTRUCTIONS if arch == machine.arch else frozenset()
    return features or {f"undecoded-{arch}"}


def _code(elf: ELFFile, data: bytes) -> Iterator[tuple[int, bytes]]:
    left = len(data)
    for section in elf.iter_sections("SHT_PROGBITS"):
        if section["sh_flags"] & _EXECUTABLE:
            start, size = section["sh_offset"], section["sh_size"]
            if start + size > len(data):
                raise ValueError(f"section {section.name} is cut off")
            left -= size  # thousands of sections that are one would be read thousands of times
            if left < 0:
                raise ValueError("its sections lie over each other")
            yield section["sh_addr"], data[start : start + size]
