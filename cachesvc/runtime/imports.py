"""Modules that functions import when they are called: found and read, never run.

Such a module may not be loaded yet, so what counts is the code that its file has, whether it is
loaded or not. Installed packages are left aside.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from cachesvc.runtime.bytecode import Import, uses
from cachesvc.runtime.functions import is_foreign

_INSTALLED = ("site-packages", "dist-packages")
_MAX_MODULES = 200


def imported_code(package: str, statement: Import) -> Iterator[tuple[str, types.CodeType]]:
    """Name and code of each module that an import leads to, with those that it imports itself."""
    seen: set[str] = set()
    waiting = list(_names(package, statement))
    while waiting and len(seen) < _MAX_MODULES:
        name = waiting.pop(0)
        if name in seen or is_foreign(name):
            continue
        seen.add(name)
        spec, code = _found(name)
        if spec is not None and code is not None:
            yield name, code
            own = spec.name if spec.submodule_search_locations else spec.parent or ""
            waiting += [each for inner in uses(code).imports for each in _names(own, inner)]


def _names(package: str, statement: Import) -> Iterator[str]:
    """The modules that a statement may load: the one named, and names in it that are modules."""
    parts = package.split(".")
    base = parts[: len(parts) - statement.level + 1] if statement.level else []
    name = ".".join([*base, *filter(None, [statement.module])])
    if name:
        yield name
        yield from (f"{name}.{inner}" for inner in statement.names if inner != "*")


def _found(name: str) -> tuple[ModuleSpec | None, types.CodeType | None]:
    try:
        spec = _spec(name)
        loader: Any = spec.loader if spec is not None else None
        if spec is None or not spec.has_location or any(p in str(spec.origin) for p in _INSTALLED):
            return None, None
        return spec, loader.get_code(name)
    except Exception:  # finders and loaders are other people's code
        return None, None


def _spec(name: str) -> ModuleSpec | None:
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    parent, _, _ = name.rpartition(".")
    if not parent:
        return importlib.util.find_spec(name)
    holder = _spec(parent)
    places = holder.submodule_search_locations if holder is not None else None
    installed = any(part in str(place) for part in _INSTALLED for place in places or ())
    return PathFinder.find_spec(name, places) if places and not installed else None
