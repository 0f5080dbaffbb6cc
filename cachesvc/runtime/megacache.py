"""The mega-cache of this process: capture and load, with its traps.

`save_cache_artifacts` gives None when nothing was recorded, does not record again what was
loaded, and needs Dynamo imported on some versions; what is recorded while it saves is in no save;
a load after the first compile comes too late for what has been compiled. So what is captured is
merged into what is stored, never put in its place, and bytes are checked before torch sees them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from cachesvc.core.errors import IntegrityError
from cachesvc.local.megafile import Artifact, put_together, take_apart

_HERE = "the mega-cache of this process"


def capture() -> tuple[Artifact, ...]:
    """The artifacts that this process has recorded since its start; empty if there are none.

    Waits while another thread compiles; compiles of others wait for as long as a save takes.
    """
    importlib.import_module("torch._dynamo")
    with _compile_lock():
        saved = torch.compiler.save_cache_artifacts()
    artifacts = () if saved is None else take_apart(saved[0], _HERE)
    recorded = tuple(_recorded())
    if set(recorded).issubset(artifacts):
        return artifacts
    return take_apart(put_together((*artifacts, *recorded)), _HERE)


def _compile_lock() -> AbstractContextManager[Any]:
    """The lock that torch holds while it compiles, so also while it records what it has compiled.

    A save goes through what is recorded and then forgets it, and may stumble over what is added
    meanwhile. Where `torch._dynamo.convert_frame.compile_lock` is missing nothing is held.
    """
    module = importlib.import_module("torch._dynamo.convert_frame")
    lock: AbstractContextManager[Any] = getattr(module, "compile_lock", nullcontext())
    return lock


def _recorded() -> Iterator[Artifact]:
    """All that this process has recorded, in order, from `CacheArtifactManager._seen_artifacts`.

    Torch holds no lock where it records the AOTAutograd entry of a training graph, at the first
    backward pass, and the autotuning of a kernel, at its first run. Where that list is missing, or
    torch names types by something else than text, what is recorded during a save is left out.
    """
    manager = getattr(sys.modules.get("torch.compiler._cache"), "CacheArtifactManager", None)
    for item in tuple(getattr(manager, "_seen_artifacts", ())):
        kind = item.type() if callable(item.type) else item.type
        if isinstance(kind, str):
            yield Artifact(kind, item.key, item.content)


def load(artifacts: Iterable[Artifact]) -> int:
    """Gives the artifacts to the compiler's caches; how many it took.

    0 where torch answers that it took none. Raises IntegrityError if torch fails on one of them.
    """
    importlib.import_module("torch._dynamo")
    try:
        loaded = torch.compiler.load_cache_artifacts(put_together(artifacts))
    except Exception as error:  # an artifact's content is unpickled: it can raise anything
        raise IntegrityError(
            f"torch cannot load this mega-cache: {type(error).__name__}: {error}"
        ) from error
    if loaded is None:
        return 0
    return sum(len(keys) for keys in loaded.artifacts.values())
