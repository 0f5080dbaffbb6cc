"""What Triton and Inductor need beside a C++ compiler: a C compiler, and Python's headers."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

_DEBIANS = "posix_local"  # a scheme of paths where no headers are


def c_compiler(environ: Mapping[str, str]) -> str | None:
    """The C compiler that Triton would build its launchers with; None if it finds none."""
    named = (environ["CC"],) if environ.get("CC") else ("gcc", "clang")
    return next((path for path in map(shutil.which, named) if path), None)


def python_headers() -> Path | None:
    """The folder that holds Python.h, where compilers look for it; None if it is not there."""
    scheme = sysconfig.get_default_scheme()
    known = "posix_prefix" if scheme == _DEBIANS else scheme
    folder = Path(sysconfig.get_path("include", scheme=known))
    return folder if os.path.exists(folder / "Python.h") else None
