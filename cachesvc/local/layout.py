"""What Inductor and Triton put where: the unit of every file, and the files that are no cache.

Layout read from torch 2.7 to 2.13 and Triton 3.3 to 3.6:

    inductor/fxgraph/xx/KEY/FILE      one FX graph under its guards, one file for each
    inductor/aotautograd/KEY/FILE     one AOTAutograd entry
    inductor/xx/STEM.SUFFIX           code, libraries and tuning results of one stem
    inductor/triton/DEVICE/KEY/FILE   Triton's directory where nobody set another one
    inductor/triton/KEY/FILE          the same under `fresh_cache`
    triton/KEY/FILE                   one Triton kernel, launcher or group

and beside the caches, all of it passed over:

    inductor/locks/                   one lock for each stem
    inductor/precompiled_headers/     147 MB that serve one compiler, and only to compile
    inductor/tmpXXXXXXXX/             what was compiled with caches switched off
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TEMPORARY = re.compile(r"^\.|^tmp\.|^locks$|\.tmp(\b|_|\d)|\.lock$|~$")
_NO_CACHE = re.compile(r"precompiled_headers|tmp[a-z0-9_]{8}")
_SHARD = re.compile(r"[a-z0-9]{2}")
_DEVICE = re.compile(r"\d+", re.ASCII)


def is_temporary(name: str) -> bool:
    """Whether a file or folder of that name is a lock, a dot-file or a temporary."""
    return _TEMPORARY.search(name) is not None


def is_passed_over(section: str, parts: Sequence[str]) -> bool:
    """Whether what lies at `parts` below a section's directory is no cache, with all below it."""
    no_cache = section == "inductor" and len(parts) == 1 and _NO_CACHE.fullmatch(parts[0])
    return bool(no_cache) or is_temporary(parts[-1])


def entry_parts(section: str, parts: Sequence[str]) -> tuple[str, ...]:
    """The parts of the entry path of the file that lies at `parts` below a section's directory.

    Triton's directory inside Inductor's becomes the section `triton`, whatever the device's
    number: the key of a kernel does not depend on it.
    """
    if section == "inductor" and parts[0] == "triton" and len(parts) > 2:
        below = parts[2:] if _DEVICE.fullmatch(parts[1]) else parts[1:]
        if len(below) > 1:
            return ("triton", *below)
    return (section, *parts)


def unit_key(parts: Sequence[str]) -> str:
    """The key of the unit that the entry with these path parts belongs to."""
    section, rest = parts[0], parts[1:]
    if section == "inductor" and rest:
        return "/".join((section, *_inductor_unit(rest)))
    if section in ("triton", "megacache", "aot") and len(rest) > 1:
        size = 2 if section == "triton" else 3
        return "/".join(parts[:size])
    return "/".join(parts)


def unit_of(path: str) -> str:
    """The key of the unit that the entry at this path belongs to."""
    return unit_key(path.split("/"))


def _inductor_unit(rest: Sequence[str]) -> Sequence[str]:
    if rest[0] == "fxgraph" and len(rest) >= 4:
        return rest[:3]
    if rest[0] == "aotautograd" and len(rest) >= 3:
        return rest[:2]
    if _SHARD.fullmatch(rest[0]) and len(rest) >= 2:
        return (rest[0], rest[1].partition(".")[0])
    return rest


def is_group(path: str) -> bool:
    """Whether an entry is a Triton group: the list of a kernel's files, read before all of them."""
    name = path.rpartition("/")[2]
    return path.startswith("triton/") and name.startswith("__grp__") and name.endswith(".json")


def seed_order(path: str) -> int:
    """Lower goes first: what a hit leads to is in place before the entry that makes the hit."""
    if is_group(path):
        return 1
    if path.startswith("inductor/fxgraph/"):
        return 2
    return 3 if path.startswith("inductor/aotautograd/") else 0
