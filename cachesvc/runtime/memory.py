"""The most memory that this process has used until now."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_bytes() -> int | None:
    """The greatest resident size of this process, in bytes; None where Linux does not tell.

    Not `ru_maxrss`: a process inherits that from the one which started it.
    """
    try:
        told = _PEAK.search(Path("/proc/self/status").read_text())
    except OSError:
        return None
    return int(told[1]) * 1024 if told else None


def device_peak_bytes() -> int | None:
    """What tensors have taken on the current GPU at most, in bytes; None if none was used."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    return None
