"""Room on disk for what comes and goes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cachesvc.core.errors import TccacheError
from cachesvc.core.temporary import make_folder, remove_folder, remove_left_once


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """A folder that is gone afterwards. Raises TccacheError if there is no room for it.

    What killed processes left there, of any purpose, is removed before the first one.
    """
    with scratch_errors(Path("the temporary directory")):
        remove_left_once(tempfile.gettempdir())
        folder = make_folder(f"tccache-{purpose}-")
        try:
            yield Path(folder)
        finally:
            remove_folder(folder)


@contextmanager
def scratch_errors(where: Path) -> Iterator[None]:
    """Turns the operating system's errors into one sentence that says where and what to do."""
    try:
        yield
    except OSError as error:
        raise TccacheError(
            f"cannot write to {error.filename or where}: {error.strerror or error}: free some space"
            " there, or set TMPDIR to a directory that has more"
        ) from error
