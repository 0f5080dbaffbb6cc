"""Which units of the live directory this process has compiled or used."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cachesvc.local.layout import unit_key, unit_of
from cachesvc.local.megafile import Artifact
from cachesvc.runtime.watch import seen

_FOLDERS = {"inductor": "fxgraph", "aot_autograd": "aotautograd"}


def used_units(artifacts: Iterable[Artifact], inductor: Path) -> frozenset[str]:
    """The keys of these units; empty where nothing can be told about this process.

    `artifacts` are those that torch has recorded: it records each graph that it compiled or found.
    Sources are seen by a hook, generated modules in torch's own list, kernels where a cache entry
    brought them. Where torch keeps no list of modules, none are in the answer.
    """
    graphs = frozenset(graph_units(artifacts))
    return graphs | frozenset(_stems(inductor)) | {f"triton/{key}" for key in seen.emitted}


def graph_units(artifacts: Iterable[Artifact]) -> Iterator[str]:
    """The keys of the units that artifacts of a mega-cache stand for, and of their own."""
    for artifact in artifacts:
        if graph := _graph(artifact.type, artifact.key):
            yield graph
        yield unit_of(artifact.path)


def loaded_graph(unit: str) -> str | None:
    """The unit that loading an artifact of a mega-cache, given by its unit, leaves in the live
    directory; None where that is no graph."""
    section, _, rest = unit.partition("/")
    kind, _, key = rest.partition("/")
    return _graph(kind, key) if section == "megacache" else None


def _graph(kind: str, key: str) -> str | None:
    """The unit of the graph that an artifact of this type and key holds."""
    folder = _FOLDERS.get(kind)
    if folder == "fxgraph":
        return f"inductor/fxgraph/{key[1:3]}/{key}"
    return f"inductor/{folder}/{key}" if folder else None


def _stems(inductor: Path) -> Iterator[str]:
    """The stems of sources and generated modules that lie in the live directory."""
    for file in (*seen.files, *_modules()):
        try:
            parts = Path(file).relative_to(inductor).parts
        except ValueError:
            continue
        yield unit_key(("inductor", *parts))


def _modules() -> Iterator[str]:
    cache: Any = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    for module in tuple(getattr(cache, "modules", ())):
        yield str(getattr(module, "__file__", ""))
