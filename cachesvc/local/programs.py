"""Programs at work in a directory without this library, so that they have not taken hold of it.

What the kernel tells of this user's processes: the variables each was started with, and the files
that it has mapped. A program that has set a variable itself and has mapped nothing yet is not seen,
nor is one in another PID namespace, or of another user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cachesvc.local.live import INDUCTOR, TRITON

_PROCESSES = Path("/proc")


def is_known_to_a_program(folder: Path) -> bool:
    """Whether a process that runs was told to keep a compiler's cache in the folder, or has mapped
    a file there."""
    real = os.fsencode(os.path.realpath(folder))
    processes = _PROCESSES.glob("[0-9]*")
    return any(_is_in(path, real) for process in processes for path in _paths(process))


def _is_in(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder + b"/")


def _paths(process: Path) -> Iterator[bytes]:
    with suppress(OSError):  # another user's, or it has ended
        settings = (process / "environ").read_bytes().split(b"\0")
        values = (s.partition(b"=") for s in settings)
        names = (INDUCTOR.encode(), TRITON.encode())
        folders = [value for name, _, value in values if name in names and value]
        for folder in folders:
            yield os.path.realpath(os.path.join(_working_directory(process), folder))
        for line in (process / "maps").read_bytes().splitlines():
            yield b"/" + line.partition(b"/")[2]


def _working_directory(process: Path) -> bytes:
    """What relative paths of a process are relative to, by now."""
    return os.fsencode(os.readlink(process / "cwd"))
