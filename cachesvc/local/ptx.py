"""What a Triton kernel needs of the GPU driver, read off its PTX text."""

from __future__ import annotations

import re

from cachesvc.core.errors import IntegrityError
from cachesvc.core.requirement import Requirement

_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)\s*$", re.MULTILINE)
# The PTX releases 7, 8 and 9 came with CUDA 11, 12 and 13; torch of today knows none older.
_CUDA_BEFORE_PTX = 4
_LOWEST_CUDA = 11


def driver_requirement(ptx: str) -> Requirement:
    """The CUDA version that the driver must support to run what was compiled from this PTX.

    Only the major counts: "Minor Version Compatibility" of the CUDA guide lets a driver run what
    any toolkit of its major compiled, and Triton ships the compiled cubin beside the PTX.
    Raises IntegrityError if the text has no `.version`.
    """
    found = _VERSION.search(ptx)
    if found is None:
        raise IntegrityError("this is not PTX: it has no .version line")
    return Requirement("driver", f"{max(int(found[1]) + _CUDA_BEFORE_PTX, _LOWEST_CUDA)}.0")
