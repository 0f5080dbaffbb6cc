"""What a unit on disk needs of a host: read off its libraries and kernels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress

from cachesvc.core.errors import IntegrityError
from cachesvc.core.requirement import Requirement
from cachesvc.local.libraries import read_requirements
from cachesvc.local.ptx import driver_requirement
from cachesvc.local.tree import FoundFile, FoundUnit

_LIBRARY = ".so"
_PTX = ".ptx"
_PTX_HEAD = 4096
# The last one is behind datetime.strptime, which reads the times in manifests.
_PARSERS = ("elftools.elf.elffile", "elftools.elf.gnuversions", "iced_x86", "_strptime")


def unit_needs(unit: FoundUnit) -> tuple[Requirement, ...]:
    """All requirements of the unit's files, those that are not packed included.

    Raises IntegrityError if a library or kernel in it is damaged, or gone since the tree was
    read: such a unit is not to be published.
    """
    files = (*unit.files, *unit.left_out)
    return tuple(sorted({need for file in files for need in _file_needs(file)}))


def load_parsers() -> None:
    """Imports what reads libraries, for a thread that is to import nothing itself."""
    for name in _PARSERS:
        with suppress(ImportError):  # what is missing is met where it is used
            importlib.import_module(name)


def _file_needs(file: FoundFile) -> Iterator[Requirement]:
    if file.content is not None:
        return
    try:
        if file.path.endswith(_LIBRARY):
            yield from read_requirements(file.source, name=file.path)
        elif file.path.endswith(_PTX):
            with open(file.source, encoding="utf-8", errors="replace") as source:
                head = source.read(_PTX_HEAD)
            yield driver_requirement(head)
    except OSError as error:
        raise IntegrityError(f"{file.path} cannot be read: {error.strerror}") from None
