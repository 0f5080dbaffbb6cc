"""Findings about what a second start did again, though the first has filled the directories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cachesvc.core.finding import Finding
from cachesvc.runtime.trace import Lookup, Trace
from cachesvc.start.examined import Examined


def second_start(cold: Examined, local: Examined) -> Iterator[Finding]:
    """What was done again though the directories were filled, where nothing else explains it."""
    return (item for item in _again(cold, local) if item.kind not in cold.explained)


def _again(cold: Examined, local: Examined) -> Iterator[Finding]:
    counts = local.counts
    again = counts.compiled - counts.graph_bypasses
    if again > 0:
        yield _compiled_again(cold, local, again)
    elif counts.native_builds and not counts.compiled:
        yield Finding(
            "built again",
            "disease",
            "native code was built in the second start though the caches hit",
            cure="keep the cache directory as a whole: kernels lie beside the graphs",
            count=counts.native_builds,
        )
    if local.trace.tuning_s:  # not the counter: a hit adds what was measured for its entry
        yield Finding(
            "autotuned again",
            "disease",
            f"the second start measured kernels for {local.trace.tuning_s:.1f} s, whose choice the"
            " first one had made",
            cure="keep torch._inductor.config.autotune_local_cache on, and the cache directory as a"
            " whole",
        )
    if counts.autograd_misses and not again:
        yield Finding(
            "traced again",
            "disease",
            "AOTAutograd had stored no entry: a graph with gradients is stored after its backward"
            " pass",
            cure="make the calls under torch.no_grad(), or give whole training steps",
            count=counts.autograd_misses,
        )


def _compiled_again(cold: Examined, local: Examined, again: int) -> Finding:
    differing = _key_differences(cold.trace, local.trace)
    missed = (i for i in local.trace.lookups if (i.layer, i.state) == ("Inductor", "miss"))
    place = next((p for p in (local.trace.place(item.graph) for item in missed) if p), "")
    if differing:
        return Finding(
            "compiled again",
            "disease",
            "the second start compiled it again: its key differs from process to process in"
            f" {', '.join(differing)}",
            where=place,
            cure="find what this is made of that is another in each process: a random number, a"
            " time, a path, an address, the order of a set; keep it out of the graph",
            count=again,
        )
    return Finding(
        "compiled again",
        "disease",
        "the second start compiled it again though the first one had filled the directories",
        where=place,
        cure="run with --trace DIR and compare the two traces with tlparse",
        count=again,
    )


def _key_differences(cold: Trace, local: Trace) -> list[str]:
    """The components of Inductor's keys that differ between the same misses of two starts.

    A graph's forward and backward pass have one number, so the lookups of a number are compared in
    their order, and only where both starts made as many.
    """
    found: dict[str, None] = {}
    before, after = _inductors_lookups(cold), _inductors_lookups(local)
    for graph, lookups in after.items():
        earlier = before.get(graph, [])
        for old, new in zip(earlier, lookups, strict=True) if len(earlier) == len(lookups) else ():
            if old.state == new.state == "miss":
                found |= dict.fromkeys(_differing(old.components, new.components))
    return list(found)


def _inductors_lookups(trace: Trace) -> dict[str, list[Lookup]]:
    """By the number of the graph."""
    found: dict[str, list[Lookup]] = {}
    for item in trace.lookups:
        if item.layer == "Inductor":
            found.setdefault(item.graph, []).append(item)
    return found


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    names = dict.fromkeys((*old, *new))
    return (name for name in names if old.get(name) != new.get(name))
