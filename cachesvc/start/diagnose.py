"""Findings about a target, from two starts of it: one with empty directories, one with those that
the first has filled."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cachesvc.core.cure import break_cure, bypass_cure, cudagraph_cure, is_asked_for, is_limit
from cachesvc.core.finding import Finding
from cachesvc.core.incident import CONSEQUENCES
from cachesvc.runtime.incidents import headline
from cachesvc.runtime.trace import CompileRecord, Trace
from cachesvc.start.again import second_start
from cachesvc.start.examined import Examined, is_set_by_variable, setting_name
from cachesvc.start.recompiles import limits, recompiles

_MOST_TEXT = 300
_NO_GRAPH_CACHE = "FX graph cache is not enabled"


def diagnose(
    cold: Examined, local: Examined | None, environ: Mapping[str, str]
) -> tuple[Finding, ...]:
    """What keeps the target from compiling once and from starting warm, worst first.

    `local` is None where there was no second start.
    """
    return tuple(
        shortened(item)
        for item in (
            *_switches(cold, environ),
            *_not_compiled(cold, environ),
            *limits(cold),
            *_graph_breaks(cold),
            *recompiles(cold),
            *_bypasses(cold),
            *(second_start(cold, local) if local else ()),
            *_not_saved(cold),
            *_cudagraphs(cold.trace.compiles),
            *_notes(cold),
        )
    )


def _switches(cold: Examined, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Settings of the program that switch something off, unless a variable has been named."""
    for setting in cold.switched_off:
        name = setting_name(setting)
        follows = (
            "torch.compile does nothing"
            if name == "disable"
            else "what this switches off is done again at each start"
        )
        if not is_set_by_variable(name, environ):
            yield Finding(
                "setting",
                "disease",
                f"{setting} where the calls are made: {follows}",
                cure="set it otherwise where the model is served",
            )


def _not_compiled(cold: Examined, environ: Mapping[str, str]) -> Iterator[Finding]:
    counts = cold.counts
    explained = "nothing compiled" in cold.explained or is_set_by_variable("disable", environ)
    if counts.eager:
        yield Finding(
            "eager graph",
            "disease",
            "it could not be compiled here and runs as it was written: there is no C++ compiler",
            cure="install one (g++), or publish the model's kernels from a machine that has one",
            count=counts.eager,
        )
    if cold.report["verdict"] == "eager" and not explained and not counts.eager:
        yield Finding(
            "nothing compiled",
            "disease",
            "no call asked the compiler for anything: the calls do not reach what is compiled",
            cure="call what torch.compile gave back, or give the arguments of the calls",
        )


def _graph_breaks(cold: Examined) -> Iterator[Finding]:
    """From the trace, which knows the place; else as the counters tell."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in cold.trace.breaks:
        found.setdefault((item.place, item.headline), []).append(item.reason)
    if not found:
        found = {
            (item["place"], item["reason"]): [item["reason"]] * item["count"]
            for item in cold.incidents("graph break")
            if not is_limit(item["reason"])
        }
    for (place, told), reasons in found.items():
        yield Finding(
            "graph break",
            "hint" if is_asked_for(reasons[0]) else "disease",
            told,
            where=place,
            cure=break_cure(reasons[0]),
            count=len(reasons),
        )


def _bypasses(cold: Examined) -> Iterator[Finding]:
    """Graphs that a cache refuses; the trace knows of which function they are."""
    for layer in ("Inductor", "AOTAutograd"):
        kind = f"bypass {layer}"
        for item in cold.incidents(kind):
            if _follows(item["reason"], cold.settings):
                continue
            yield Finding(
                kind,
                "disease",
                f"{item['reason'].rstrip('.')}; {CONSEQUENCES[kind]}",
                where=_bypassed(cold.trace, layer, item["reason"]),
                cure=bypass_cure(item["reason"]),
                count=item["count"],
            )


def _follows(reason: str, settings: Sequence[str]) -> bool:
    """Whether a cache refuses graphs because the other one is switched off."""
    off = {"fx_graph_cache", "force_disable_caches"} & set(settings)
    return bool(off) and _NO_GRAPH_CACHE in reason


def _bypassed(trace: Trace, layer: str, reason: str) -> str:
    """The first function of which a cache refused a graph for this reason."""
    places = (
        trace.place(item.graph)
        for item in trace.lookups
        if (item.layer, item.state) == (layer, "bypass")
        and headline(item.reason).rstrip(".") == reason.rstrip(".")
    )
    return next(filter(None, places), "")


def _not_saved(cold: Examined) -> Iterator[Finding]:
    if cold.counts.unsaved:
        yield Finding(
            "not saved",
            "disease",
            "a compiled graph could not be written to the cache: see torch's warnings",
            cure="keep objects that cannot be pickled out of the graph",
            count=cold.counts.unsaved,
        )


def _cudagraphs(compiles: Iterable[CompileRecord]) -> Iterator[Finding]:
    found: dict[str, list[CompileRecord]] = {}
    for item in compiles:
        if item.cudagraph_skip:
            found.setdefault(item.cudagraph_skip, []).append(item)
    for reason, group in found.items():
        yield Finding(
            "no CUDA graph",
            "hint",
            f"it was asked for and not captured: {reason}",
            where=next((item.place for item in group if item.place), ""),
            cure=cudagraph_cure(reason),
            count=len(group),
        )


def _notes(cold: Examined) -> Iterator[Finding]:
    """What the report says besides; what is told as a finding already is left out."""
    for text in cold.report["notes"]:
        if not text.startswith(("AOTAutograd has stored nothing", "no C++ compiler")):
            yield Finding("note", "hint", text)
    for name in cold.counts.unread:
        yield Finding("not counted", "hint", f"this torch has no {name}, so warmth is not proven")


def shortened(item: Finding) -> Finding:
    """The finding with texts for people: not too long, paths from the working directory."""
    here = os.getcwd() + os.sep
    what = " ".join(item.what.split())
    what = what if len(what) <= _MOST_TEXT else what[: _MOST_TEXT - 3] + "..."
    return replace(item, what=what, where=item.where.removeprefix(here))
