"""torch's own kernels that generated code calls by the names of Inductor's table.

Inductor's table holds mostly functions of torch under their own names; reading it takes importing
the code generator, so a captured graph keeps the names instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch

from cachesvc.core.errors import TccacheError


def torch_externs(names: Iterable[str]) -> tuple[str, ...]:
    """These names, each of which stands for torch's function of that name in Inductor's table.

    Raises TccacheError for a name that stands for something else.
    """
    wanted = tuple(names)
    if not wanted:
        return ()
    table = importlib.import_module("torch._inductor.select_algorithm").extern_kernels
    for name in wanted:
        own = getattr(torch, name, None)
        if own is None or getattr(table, name) is not own:
            raise TccacheError(f"the graph calls Inductor's own {name}")
    return wanted


def extern_table(names: Iterable[str]) -> Any:
    """What generated code finds these names in."""
    return SimpleNamespace(**{name: getattr(torch, name) for name in names})
