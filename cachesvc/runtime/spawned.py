"""The same keys in a program and in the workers that it spawns.

The key of a graph is a hash of pickles, and some of torch's constants do not say where they come
from: pickle then takes the first module that holds them as `torch.NAME`. In a spawned worker, and
wherever `multiprocessing` was imported before torch, that is the program itself, under its other
name; everywhere else it is a module of torch. (Pickle written in Python passes over that name; the
one in C, which torch uses, does not.)
"""

from __future__ import annotations

import sys

_OTHER_NAME = "__mp_main__"


def find_program_last() -> None:
    """Puts the program's other name behind torch's modules, as every import does with its own."""
    module = sys.modules.pop(_OTHER_NAME, None)
    if module is not None:
        sys.modules[_OTHER_NAME] = module
