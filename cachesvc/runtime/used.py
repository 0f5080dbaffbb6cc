"""Which units of the live directory this process has compiled or used."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cachesvc.local.layout import unit_key
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
        folder = _FOLDERS.get(artifact.type)
        if folder == "fxgraph":
            yield f"inductor/fxgraph/{artifact.key[1:3]}/{artifact.key}"
        elif folder:
            yield f"inductor/{folder}/{artifact.key}"
        yield unit_key(artifact.path.split("/"))


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
