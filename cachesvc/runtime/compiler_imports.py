"""The compiler's imports in a thread of their own, while the program loads its weights.

The modules of torch import each other in circles. Two threads that enter such a circle at different
places make Python hand out a module that is half imported, and an import that never fails by itself
then fails in either of them, in the program's own thread too. So while the compiler is imported
beside, other threads wait before they begin to import another module of torch; everything that is
imported already, and every other package, they have at once.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")
PATIENCE_S = 60.0
"""How long another thread, or a fork, waits for these imports, at most."""

_ROOTS = frozenset({"torch", "functorch"})
_LOOK_S = 0.02
_SWITCH_S = 0.01

Over = Callable[[], bool]


class ImportsEnded(Exception):
    """The program ends, so the compiler's imports were broken off."""


def close_gate(over: Over) -> Gate | None:
    """A gate, closed once the program's own import of torch is done.

    To be called in a thread beside the program, which then imports through the gate. Another thread
    that is in the middle of importing modules of torch is waited for. `over` is asked meanwhile and
    at each import: once it is true, ImportsEnded is raised. None where this Python has no
    `_find_and_load` or no `_module_locks`, by which others are kept apart: then nothing may be
    imported beside them.
    """
    bootstrap: Any = importlib.import_module("importlib._bootstrap")
    if not hasattr(bootstrap, "_find_and_load") or not hasattr(bootstrap, "_module_locks"):
        return None
    _watch_forks()
    while not over():
        if Gate.closed is None and _is_imported("torch") and not _under_way(bootstrap):
            gate = Gate(bootstrap, over)
            time.sleep(_SWITCH_S)  # who had passed just before it was closed is seen now
            if not _under_way(bootstrap):
                return gate
            gate.open()
        time.sleep(_LOOK_S)
    raise ImportsEnded


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _under_way(bootstrap: Any) -> bool:
    """Whether some thread is importing a module of torch: its lock exists only that long."""
    return any(_is_torchs(name) for name in tuple(bootstrap._module_locks))


def _is_torchs(name: str) -> bool:
    return name.partition(".")[0] in _ROOTS


class Gate:
    """Closed from the beginning: threads other than the one that made it wait for its end."""

    closed: Gate | None = None

    def __init__(self, bootstrap: Any, over: Over) -> None:
        self._bootstrap = bootstrap
        self._over = over
        self._owner = threading.get_ident()
        self._opened = threading.Event()
        self._original: Callable[..., Any] = bootstrap._find_and_load
        Gate.closed = self
        # Python looks this function up anew for each module that it does not have yet.
        bootstrap._find_and_load = self._find_and_load

    def _find_and_load(self, name: str, import_: Any) -> Any:
        if threading.get_ident() == self._owner:
            if self._over():
                raise ImportsEnded
        elif _is_torchs(name):
            self._opened.wait(PATIENCE_S)
        return self._original(name, import_)

    def import_all(self, names: tuple[str, ...] = COMPILER) -> None:
        """Imports the modules, and opens. Raises what an import raises."""
        try:
            for name in names:
                importlib.import_module(name)
        finally:
            self.open()

    def open(self) -> None:
        self.restore()
        self._opened.set()

    def restore(self) -> None:
        """Lets every later import pass; who waits already is not told."""
        self._bootstrap._find_and_load = self._original
        Gate.closed = None

    def wait(self) -> None:
        """Waits until it is open, if it is another thread's."""
        if threading.get_ident() != self._owner:
            self._opened.wait(PATIENCE_S)


@functools.cache
def _watch_forks() -> None:
    """A fork waits for these imports: in the child they would stay half done for ever."""
    os.register_at_fork(before=_wait_until_open, after_in_child=_open_in_child)


def _wait_until_open() -> None:
    if (gate := Gate.closed) is not None:
        gate.wait()


def _open_in_child() -> None:
    if (gate := Gate.closed) is not None:
        gate.restore()  # nobody waits here: a child has one thread
