"""Which devices the kernels of a tree were compiled for, read off Triton's own metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from cachesvc.core.components import Components
from cachesvc.local.layout import is_group
from cachesvc.local.tree import FoundUnit

_KINDS = frozenset({"cuda", "hip"})


def foreign_devices(units: Iterable[FoundUnit], environment: Components) -> tuple[str, ...]:
    """The targets of kernels that the environment's device does not run, as `cuda 90`.

    A kernel's target has an architecture: the capability without its dot for CUDA, a gfx name
    for ROCm. Metadata that cannot be read, and targets of another kind, say nothing.
    """
    own = _architecture(environment.get("capability", ""))
    targets = (target for unit in units for target in _targets(unit))
    return tuple(sorted({f"{kind} {arch}" for kind, arch in targets if arch != own}))


def _architecture(text: str) -> str:
    """`90` for `9.0`, `gfx942` for `gfx942:sramecc+:xnack-`: features are not part of the name."""
    return text.partition(":")[0].replace(".", "")


def _targets(unit: FoundUnit) -> Iterable[tuple[str, str]]:
    for file in unit.files:
        metadata = file.path.startswith("triton/") and file.path.endswith(".json")
        if metadata and not is_group(file.path):
            yield from _target(file.source)


def _target(metadata: Path) -> Iterable[tuple[str, str]]:
    try:
        target = json.loads(metadata.read_bytes())["target"]
        kind, arch = str(target["backend"]), _architecture(str(target["arch"]))
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return
    if kind in _KINDS:
        yield kind, arch
