"""The most memory that this process has used until now."""

from __future__ import annotations

import resource

import torch


def peak_bytes() -> int:
    """The greatest resident size of this process, in bytes; Linux counts it in kibibytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def device_peak_bytes() -> int | None:
    """What tensors have taken on the current GPU at most, in bytes; None if none was used."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    return None
