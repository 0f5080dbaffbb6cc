"""Temporary folders that belong to the process which made them.

`tempfile.TemporaryDirectory` is removed at the end of any process that knows of it: a fork that
ends, such as a worker of a server, would take away what its parent is at work in.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_own: set[str] = set()


def make_folder(prefix: str) -> str:
    """A new folder, there until `remove_folder` or the end of this process."""
    folder = tempfile.mkdtemp(prefix=prefix)
    _own.add(folder)
    return folder


def remove_folder(folder: str) -> None:
    """Removes a folder that this process has made, and nobody else's."""
    if folder in _own:
        _own.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_all() -> None:
    for folder in tuple(_own):
        remove_folder(folder)


# Registered here, before any work begins: what is registered later, such as the wait for a
# publication, comes first at the end.
atexit.register(_remove_all)
os.register_at_fork(after_in_child=_own.clear)
