"""Who writes a segment, as its manifest says."""

from __future__ import annotations

import importlib.metadata
import platform

from cachesvc.core.components import Components


def producer() -> Components:
    """The versions of this library and of the interpreter that runs it."""
    return Components.of(
        {
            "tccache": importlib.metadata.version("tccache"),
            "python": platform.python_version(),
        }
    )
