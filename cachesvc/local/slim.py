"""Triton kernels without the files that no hit reads.

Beside a kernel's binary lie the texts it came from, most of its bytes. On a hit Triton needs the
binary and the metadata alone: what it leaves by itself with TRITON_STORE_BINARY_ONLY, so it takes
such a kernel as whole. Who asks the kernel for a text then (`asm["ptx"]`) is told there is none.
"""

from __future__ import annotations

from dataclasses import replace

from cachesvc.local.group import children, without
from cachesvc.local.layout import is_group
from cachesvc.local.tree import FoundFile, FoundUnit

_BINARIES = (".cubin", ".hsaco", ".spv", ".zebin")
_TEXTS = (".source", ".ttir", ".ttgir", ".llir", ".ptx", ".amdgcn")


def slim(unit: FoundUnit) -> FoundUnit:
    """The unit without texts, and with groups that do not list them.

    As it is, if it is no kernel, or one of a kind whose binary is not known here.
    """
    groups = [file for file in unit.files if is_group(file.path)]
    if not groups or not all(map(_has_binary, groups)):
        return unit
    texts = tuple(file for file in unit.files if file.path.endswith(_TEXTS))
    kept = (_slim_group(file) for file in unit.files if file not in texts)
    return replace(unit, files=tuple(kept), left_out=texts)


def _has_binary(group: FoundFile) -> bool:
    listed = children(group.content, group.path) if group.content else ()
    return any(name.endswith(_BINARIES) for name in listed)


def _slim_group(file: FoundFile) -> FoundFile:
    if file.content is None:
        return file
    content = without(file.content, _TEXTS, file.path)
    return replace(file, content=content, size=len(content))
