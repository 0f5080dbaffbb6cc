"""Forgetting what this process has compiled or loaded, so that a call can be made again."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cachesvc.core.temporary import make_folder
from cachesvc.local.live import INDUCTOR, TRITON

_MODULE = "torch._inductor.utils"
# The second is the older name.
_CLEARERS = ("clear_caches", "clear_inductor_caches")


class _Turn:
    """Whose turn it is to be apart: the directories in effect are those of all threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def unlock(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self.lock = threading.RLock()


_turn = _Turn()
os.register_at_fork(after_in_child=_turn.unlock)


def forget_compiled() -> tuple[str, ...]:
    """Forgets all compiled code, so that the next call compiles, or reads the caches, anew.

    Files are left alone. Compiled models stay compiled models; what they had compiled is made
    again at their next calls. Gives the names of what this torch does not have: then a module or
    library that was loaded may be used again, and the next call may fail as the last one did.

    A library that was loaded once stays in the process under its path, whatever becomes of the
    file: Python keeps the initialised extension module. Where the next call fails, too, only
    `apart` makes one that is free of it.
    """
    import torch._dynamo

    torch._dynamo.reset()
    # Modules by path, libraries by key, kernels that worker processes compile: without this a file
    # that was put right is not read.
    module = importlib.import_module(_MODULE)
    clear = next((getattr(module, name) for name in _CLEARERS if hasattr(module, name)), None)
    if clear is None:
        return (f"{_MODULE}.{_CLEARERS[0]}",)
    clear()
    return ()


@contextmanager
def apart() -> Iterator[None]:
    """Within, the compiler has empty directories, as if nothing had ever been compiled.

    Also nothing that is loaded already is used, since every path is another one. What is compiled
    within stays usable afterwards and is not found by later processes.
    """
    with _turn.lock:
        forget_compiled()
        # Removed when the interpreter ends: a kernel may be loaded for another device later.
        folder = make_folder("tccache-apart-")
        before = {name: os.environ.get(name) for name in (INDUCTOR, TRITON)}
        os.environ[INDUCTOR] = os.path.join(folder, "inductor")
        os.environ[TRITON] = os.path.join(folder, "triton")
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
