"""torch's own kernels that generated code calls by the names of Inductor's table.

Inductor's table holds mostly functions of torch under their own names; reading it takes importing
the code generator, so a captured graph keeps where each is found instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from cachesvc.core.errors import TccacheError


def extern_places(names: Iterable[str]) -> dict[str, str]:
    """Where another process finds what Inductor's table has under these names: module and name.

    Raises TccacheError for what no name leads to.
    """
    wanted = tuple(names)
    if not wanted:
        return {}
    table = importlib.import_module("torch._inductor.select_algorithm").extern_kernels
    return {name: _place(name, getattr(table, name)) for name in wanted}


def extern_table(places: Mapping[str, str]) -> Any:
    """What generated code finds these names in. Where one is Inductor's own, that is imported.

    Raises ImportError or AttributeError for what is not there any more.
    """
    return SimpleNamespace(**{name: _found(place) for name, place in places.items()})


def _place(name: str, kernel: Any) -> str:
    if getattr(torch, name, None) is kernel:
        return f"torch:{name}"
    place = f"{getattr(kernel, '__module__', '')}:{getattr(kernel, '__name__', '')}"
    try:
        if _found(place) is kernel:
            return place
    except (ImportError, AttributeError, ValueError):
        pass
    raise TccacheError(f"the graph calls {name}, which another process could not find")


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
