"""Writing a file whole: readers see the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cachesvc.core.errors import TccacheError


def write_whole(file: Path, data: bytes) -> None:
    """Replaces `file` by one rename. Raises TccacheError, leaving no temporary, if it cannot."""
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:64]}-")
        try:
            with os.fdopen(handle, "wb") as target:
                target.write(data)
            os.replace(name, file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turns the operating system's errors into one sentence that says where and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise TccacheError(
            f"cannot write to {error.filename or where}: {reason}: free space or permissions"
            " there, or choose another directory (TCCACHE_HOME for the live directory)"
        ) from error
