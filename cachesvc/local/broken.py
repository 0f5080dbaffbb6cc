"""Files of a cache that can be seen to be broken without knowing what they should hold.

A writer that was killed, a disk that was full, a machine that lost its power: what these leave is
empty, cut short or filled with zeros. Most of the compiler's readers raise for it at every start,
and a native library or kernel that is cut short kills the process: decision 0010.
"""

from __future__ import annotations

import json
import struct
from pathlib import PurePosixPath

_NATIVE = frozenset({".so", ".cubin", ".hsaco"})
_EMPTY_IS_BROKEN = frozenset({".cpp", ".py", ".h"})
_HEADER = 64
_STRING_TABLE = 3
_PICKLE, _STOP = b"\x80", b"."


def is_native(path: str) -> bool:
    """Whether a path is that of a library or of a kernel's machine code."""
    return path.endswith(tuple(_NATIVE))


def broken(path: str, data: bytes) -> str | None:
    """What is wrong with the bytes of the file at an entry path; None if nothing can be seen.

    Never a reason for what a compiler has written whole, so kinds of file that are not known here
    are taken to be right.
    """
    suffix = PurePosixPath(path).suffix
    if suffix in _NATIVE:
        return _native(data)
    if _is_json(path):
        return _json(data)
    if path.startswith(("inductor/fxgraph/", "inductor/aotautograd/")):
        return _pickle(data)
    if suffix in _EMPTY_IS_BROKEN:
        return _text(data)
    return None


def broken_source(path: str, data: bytes) -> str | None:
    """As `broken`, but also reads Python as Python does: a third of a second for each MB."""
    reason = broken(path, data)
    if reason is None and path.endswith(".py"):
        try:
            compile(data, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "is no Python"
    return reason


def is_named_by_content(path: str) -> bool:
    """Whether a file's name stands for its bytes, so that no compiler writes others under it.

    Libraries are built again when they are missing, Triton writes a kernel again after a miss, and
    tuning results get better: for those, other bytes are no damage as long as they are whole.
    """
    if path.startswith(("inductor/fxgraph/", "inductor/aotautograd/", "megacache/")):
        return True
    return path.startswith("inductor/") and path.endswith((".py", ".cpp"))


def _is_json(path: str) -> bool:
    parts = path.split("/")
    if parts[-1].endswith(".best_config"):
        return True
    if path.startswith("inductor/cache/") and len(parts) == 3:
        return True
    in_triton = path.startswith(("triton/", "inductor/triton/"))
    return in_triton and parts[-1].endswith(".json")


def _native(data: bytes) -> str | None:
    """Whether an ELF file holds all that its header says. Its tables lie at its end."""
    if not data:
        return "is empty"
    if data[:4] != b"\x7fELF" or len(data) < _HEADER:
        return "is not a native library: it has no ELF header"
    if data[4:6] != b"\x02\x01":
        return None  # not 64 bits, little-endian: no such host is known here
    programs, sections = struct.unpack_from("<QQ", data, 32)
    of_program, n_programs, of_section, n_sections, names = struct.unpack_from("<HHHHH", data, 54)
    if max(programs + of_program * n_programs, sections + of_section * n_sections) > len(data):
        return "is cut short"
    if names < n_sections and of_section == _HEADER:
        (kind,) = struct.unpack_from("<I", data, sections + names * of_section + 4)
        if kind != _STRING_TABLE:
            return "is damaged: its section table is overwritten"
    return None


def _json(data: bytes) -> str | None:
    if not data:
        return "is empty"
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return "is no JSON"
    return None


def _pickle(data: bytes) -> str | None:
    if not data.strip(b"\0"):
        return "is empty"
    if data.startswith(_PICKLE) and not data.endswith(_STOP):
        return "is cut short"
    return None


def _text(data: bytes) -> str | None:
    if not data.strip():
        return "is empty"
    return "is no text" if b"\0" in data else None
