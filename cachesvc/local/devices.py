"""Which devices the kernels of a tree were compiled for, read off Triton's own metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from cachesvc.core.components import Components
from cachesvc.local.layout import is_group
from cachesvc.local.tree import FoundUnit


def foreign_devices(units: Iterable[FoundUnit], environment: Components) -> tuple[str, ...]:
    """The targets of kernels that the environment's device does not run, as `cuda 90`.

    A kernel's target has an architecture: the capability without its dot for CUDA, a gfx name
    for ROCm. Metadata that cannot be read says nothing.
    """
    own = {environment.get("capability", "").replace(".", ""), environment.get("device", "")}
    targets = (target for unit in units for target in _targets(unit))
    return tuple(sorted({f"{kind} {arch}" for kind, arch in targets if arch not in own}))


def _targets(unit: FoundUnit) -> Iterable[tuple[str, str]]:
    for file in unit.files:
        name = file.path.rpartition("/")[2]
        if file.path.startswith("triton/") and name.endswith(".json") and not is_group(name):
            yield from _target(file.source)


def _target(metadata: Path) -> Iterable[tuple[str, str]]:
    try:
        target = json.loads(metadata.read_bytes())["target"]
        yield str(target["backend"]), str(target["arch"]).partition(":")[0]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return
