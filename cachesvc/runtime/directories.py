"""The directories that this process's compiler reads and writes."""

from __future__ import annotations

import os
from pathlib import Path

from cachesvc.local.live import INDUCTOR, TRITON, Live, live_directory
from cachesvc.runtime.counters import compiled_so_far

_set_here: dict[str, str] = {}


def current(environment: str) -> Live:
    """The live directory for an environment (its digest), without changing anything.

    Before the first compile the variables are the user's, or what `use` has set; afterwards torch
    has set them itself to the directories in effect, which cannot be left any more.
    """
    user = {name: value for name, value in os.environ.items() if _set_here.get(name) != value}
    if is_late():
        return live_directory(environment, os.environ)
    return live_directory(environment, user)


def is_late() -> bool:
    """Whether something was compiled already, so that the directories are settled."""
    return compiled_so_far() > 0


def use(live: Live) -> None:
    """Makes the compiler of this process, and of its children, use the live directory.

    Sets the environment variables that torch and Triton read at the first compile; compile
    workers inherit them.
    """
    for name, prefix in ((INDUCTOR, "inductor"), (TRITON, "triton")):
        folder = str(live.folder(prefix))
        if os.environ.get(name) != folder:
            os.environ[name] = folder
            _set_here[name] = folder


def triton_folder(live: Live) -> Path:
    """Triton's directory in effect."""
    return Path(os.environ.get(TRITON) or live.folder("triton"))
