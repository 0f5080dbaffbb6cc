"""The compiler's own counters, read as one value."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cachesvc.core.report import Counts
from cachesvc.local.layout import is_temporary
from cachesvc.runtime.compiler import eager_graphs
from cachesvc.runtime.incidents import graph_breaks
from cachesvc.runtime.watch import seen, watch

_TUNINGS = (
    "select_algorithm_autotune",
    "coordesc_tuning_bench",
    "combo_autotune_bench",
    "pad_mm_bench",
)

_UNSAVED = ("fxgraph_cache_pickle_error", "fxgraph_cache_write_error")

# Not `fx_codegen_and_compile`: that one is timed around the cache too, hit or miss.
_GENERATED = "GraphLowering.codegen"

# Which of the counts are in which of torch's two tables.
_FIELDS = {
    "counters": (
        *("graphs", "graph_hits", "graph_misses", "graph_bypasses", "graph_breaks"),
        *("autograd_hits", "autograd_misses", "autograd_bypasses", "autotunings", "unsaved"),
    ),
    "metrics": ("generated",),
}


class Meter:
    """Counts what the compiler does from the moment it is made.

    C++ builds are counted by a hook in this process, where Inductor runs them. Triton compiles in
    worker processes too, so its builds are counted by their trace: keys that appeared in Triton's
    directory and were not written there out of a cache entry. What another process builds into
    the same directory is counted as well: a start can look worse than it was, never better.

    Without `hooked` torch is left without hooks, and native builds are unread.
    """

    def __init__(self, triton: Path | None, *, hooked: bool = True) -> None:
        if hooked:
            watch()
        self._unwatched = () if hooked else ("native builds, which nobody watched",)
        self._triton = triton
        self._keys = frozenset(_names_in(triton))
        self._before = self._read()
        self._stored = _autograd_stored()
        self._tables = _tables()

    def read(self) -> Counts:
        """The counts since this meter was made, or since the program cleared the counters."""
        now = _tables()
        cleared = [name for name, table in self._tables.items() if table is not now[name]]
        gone: dict[str, Any] = {field: 0 for name in cleared for field in _FIELDS[name]}
        return self._read().minus(replace(self._before, **gone))

    def unstored(self) -> int:
        """How many graphs AOTAutograd missed and has not stored either, so will miss again.

        A graph with gradients is stored when its backward pass is compiled.
        """
        cleared = self._tables["counters"] is not _tables()["counters"]
        stored = _autograd_stored() - (0 if cleared else self._stored)
        return max(0, self.read().autograd_misses - stored)

    def _read(self) -> Counts:
        counters = _counters()
        inductor = counters.get("inductor", {})
        autograd = counters.get("aot_autograd", {})
        return Counts(
            graphs=counters.get("stats", {}).get("unique_graphs", 0),
            graph_hits=inductor.get("fxgraph_cache_hit", 0),
            graph_misses=inductor.get("fxgraph_cache_miss", 0),
            graph_bypasses=inductor.get("fxgraph_cache_bypass", 0),
            generated=_generated(),
            autograd_hits=autograd.get("autograd_cache_hit", 0),
            autograd_misses=autograd.get("autograd_cache_miss", 0),
            autograd_bypasses=autograd.get("autograd_cache_bypass", 0),
            autotunings=sum(inductor.get(name, 0) for name in _TUNINGS),
            unsaved=sum(table.get(name, 0) for table in (inductor, autograd) for name in _UNSAVED),
            cpp_builds=seen.builds,
            cpp_hits=seen.found,
            eager=eager_graphs(),
            triton_builds=len(self._built_keys()),
            graph_breaks=graph_breaks().total(),
            aot_hits=_tally("hits"),
            aot_misses=_tally("misses"),
            unread=tuple(sorted({*seen.unread, *self._unwatched})),
        )

    def _built_keys(self) -> set[str]:
        fresh = set(_names_in(self._triton)) - self._keys - seen.emitted
        return {name for name in fresh if not is_temporary(name)}


def compiled_so_far() -> int:
    """How many graphs Dynamo has captured in this process; 0 if it has not been imported."""
    return int(_counters().get("stats", {}).get("unique_graphs", 0))


def cpp_builds() -> int:
    """How often this process has run the C++ compiler for Inductor since the first meter."""
    return seen.builds


def _counters() -> Mapping[str, Mapping[str, int]]:
    """`torch._dynamo.utils.counters`; empty while Dynamo is not imported.

    Where this torch has no such counters, `unread` says so and no start is called warm.
    """
    module = sys.modules.get("torch._dynamo.utils")
    if module is None:
        return {}
    counters: Mapping[str, Mapping[str, int]] | None = getattr(module, "counters", None)
    if counters is None:
        seen.unread.add("torch._dynamo.utils.counters")
    return counters or {}


def _tally(name: str) -> int:
    """A count of dispatched calls; 0 while no model was armed."""
    module = sys.modules.get("cachesvc.runtime.aot.tally")
    return 0 if module is None else int(getattr(module.tally, name))


def _autograd_stored() -> int:
    return int(_counters().get("aot_autograd", {}).get("autograd_cache_saved", 0))


def _tables() -> dict[str, object]:
    """Something out of each of torch's tables that is another object once a table was cleared."""
    return {"counters": _counters().get("stats"), "metrics": _metrics().get(_GENERATED)}


def _metrics() -> Mapping[str, Sequence[float]]:
    """`torch._dynamo.utils.compilation_time_metrics`; empty where this torch has none."""
    module = sys.modules.get("torch._dynamo.utils")
    metrics: Mapping[str, Sequence[float]] = getattr(module, "compilation_time_metrics", {})
    return metrics


def _generated() -> int:
    """How often Inductor generated code.

    0 where this torch does not time that step: misses and bypasses then stand alone, and a
    compile with the caches switched off looks like no compile, so `eager`.
    """
    return len(_metrics().get(_GENERATED, ()))


def _names_in(triton: Path | None) -> list[str]:
    """The names in Triton's directory: one for each kernel or launcher that was built there."""
    try:
        return os.listdir(triton) if triton is not None else []
    except OSError:
        return []
