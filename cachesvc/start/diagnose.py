"""Findings about a target, from two starts of it: one with empty directories, one with those that
the first has filled."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cachesvc.core.cure import break_cure, bypass_cure, cudagraph_cure, is_asked_for, is_limit
from cachesvc.core.finding import Finding
from cachesvc.core.guard import Guard, read_guard
from cachesvc.core.incident import CONSEQUENCES
from cachesvc.core.report import Counts
from cachesvc.runtime.trace import Compile, Trace, read_break

_MOST_TEXT = 300
_SHOWN_VALUES = 6
# Of the versions that a function may have; from here on the limit is near.
_NEAR = 0.5

_ENVIRONMENT = {
    "force_disable_caches": (
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        "TORCH_COMPILE_FORCE_DISABLE_CACHES",
    ),
    "fx_graph_cache": ("TORCHINDUCTOR_FX_GRAPH_CACHE",),
    "enable_autograd_cache": ("TORCHINDUCTOR_AUTOGRAD_CACHE",),
    "disable": ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"),
}


@dataclass(frozen=True, slots=True)
class Examined:
    """One start of a target: its report as JSON, the compiler's trace, and settings."""

    report: Mapping[str, Any]
    trace: Trace = field(default_factory=Trace)
    switched_off: tuple[str, ...] = ()
    recompile_limit: int | None = None

    @property
    def counts(self) -> Counts:
        """The compiler's counts, of which JSON adds sums."""
        told = self.report["counts"]
        numbers = {item.name: told[item.name] for item in fields(Counts)}
        return Counts(**{**numbers, "unread": tuple(told["unread"])})


def diagnose(cold: Examined, local: Examined, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """What keeps the target from compiling once and from starting warm, worst first."""
    return tuple(
        _shortened(item)
        for item in (
            *_switches(cold, environ),
            *_not_compiled(cold, environ),
            *_limits(cold),
            *_graph_breaks(cold),
            *_recompiles(cold),
            *_bypasses(cold),
            *_second_start(cold, local),
            *_cudagraphs(cold.trace.compiles),
            *_notes(cold),
        )
    )


def refusal(error: str) -> Finding | None:
    """What a call came to that may not have a graph break and has one; None for other errors."""
    if "Unsupported: " not in error:
        return None
    broken = read_break(error)
    return _shortened(
        Finding(
            "graph break",
            "disease",
            f"no call can be made, because fullgraph=True allows none: {broken.headline}",
            where=broken.place,
            cure=break_cure(broken.reason),
        )
    )


def _shortened(item: Finding) -> Finding:
    """The finding with texts for people: not too long, paths from the working directory."""
    here = os.getcwd() + os.sep
    what = " ".join(item.what.split())
    what = what if len(what) <= _MOST_TEXT else what[: _MOST_TEXT - 3] + "..."
    return replace(item, what=what, where=item.where.removeprefix(here))


def _switches(cold: Examined, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Settings of the program that switch something off, unless a variable has been named."""
    for setting in cold.switched_off:
        name = setting.partition(" = ")[0].rpartition(".")[2]
        if not any(environ.get(variable) for variable in _ENVIRONMENT.get(name, ())):
            yield Finding(
                "setting",
                "disease",
                f"{setting} where the calls are made: what this switches off is done again at each"
                " start",
                cure="set it otherwise where the model is served",
            )


def _not_compiled(cold: Examined, environ: Mapping[str, str]) -> Iterator[Finding]:
    counts = cold.counts
    switched_off = cold.switched_off or any(map(environ.get, _ENVIRONMENT["disable"]))
    if counts.eager:
        yield Finding(
            "eager graph",
            "disease",
            "it could not be compiled here and runs as it was written: there is no C++ compiler",
            cure="install one (g++), or publish the model's kernels from a machine that has one",
            count=counts.eager,
        )
    if cold.report["verdict"] == "eager" and not switched_off and not counts.eager:
        yield Finding(
            "nothing compiled",
            "disease",
            "no call asked the compiler for anything: the calls do not reach what is compiled",
            cure="call what torch.compile gave back, or give the arguments of the calls",
        )


def _limits(cold: Examined) -> Iterator[Finding]:
    for item in cold.trace.compiles:
        if item.refused:
            limit = _of_limit(cold, item.version)
            yield Finding(
                "recompile limit",
                "disease",
                f"{limit} are used: for further inputs this runs as it was written, uncompiled",
                where=cold.trace.place(item.frame),
                cure=f"{read_guard(item.guard).cure}; or raise torch._dynamo.config.recompile_limit"
                " above the number of versions that are needed",
            )


def _of_limit(cold: Examined, versions: int) -> str:
    if cold.recompile_limit is None:
        return f"{versions} versions"
    return f"{versions} of {cold.recompile_limit} versions"


def _graph_breaks(cold: Examined) -> Iterator[Finding]:
    """From the trace, which knows the place; else as the counters tell."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in cold.trace.breaks:
        found.setdefault((item.place, item.headline), []).append(item.reason)
    if not found:
        found = {
            (item["place"], item["reason"]): [item["reason"]] * item["count"]
            for item in _incidents(cold, "graph break")
            if not is_limit(item["reason"])
        }
    for (place, headline), reasons in found.items():
        yield Finding(
            "graph break",
            "hint" if is_asked_for(reasons[0]) else "disease",
            headline,
            where=place,
            cure=break_cure(reasons[0]),
            count=len(reasons),
        )


def _incidents(start: Examined, kind: str) -> list[Mapping[str, Any]]:
    return [item for item in start.report["incidents"] if item["kind"] == kind]


def _recompiles(cold: Examined) -> Iterator[Finding]:
    """One for each function and what changed there; a refused one counts as no compile."""
    by_cause: dict[tuple[str, str], list[tuple[Compile, Guard]]] = {}
    for item in cold.trace.compiles:
        if item.guard and not item.refused:
            guard = read_guard(item.guard)
            cause = (cold.trace.place(item.frame), guard.subject)
            by_cause.setdefault(cause, []).append((item, guard))
    for (place, subject), group in by_cause.items():
        yield _recompile(cold, place, subject, group)
    if not cold.trace.compiles:
        yield from map(_recompile_told, _incidents(cold, "recompile"))


def _recompile(
    cold: Examined, place: str, subject: str, group: Sequence[tuple[Compile, Guard]]
) -> Finding:
    frame, guard = group[0][0].frame, group[0][1]
    versions = 1 + max(c.version for c in cold.trace.compiles if c.frame == frame and not c.refused)
    near = versions > _NEAR * (cold.recompile_limit or versions)
    values = _values(item for _, item in group)
    return Finding(
        "recompile",
        "disease" if guard.curable or near else "hint",
        f"{subject} changed{values}, and the code was compiled again;"
        f" {_of_limit(cold, versions)} are used",
        where=place,
        cure=guard.cure,
        count=len(group),
    )


def _values(guards: Iterable[Guard]) -> str:
    """The values that were seen, in order, as far as they are told."""
    told = [text for guard in guards for text in (guard.old, guard.new) if text]
    values = list(dict.fromkeys(told))
    more = ", ..." if len(values) > _SHOWN_VALUES else ""
    return f" ({', '.join(values[:_SHOWN_VALUES])}{more})" if values else ""


def _recompile_told(incident: Mapping[str, Any]) -> Finding:
    guard = read_guard(incident["reason"])
    return Finding(
        "recompile",
        "disease" if guard.curable else "hint",
        f"{guard.subject} changed{_values([guard])}, and the code was compiled again",
        where=incident["place"],
        cure=guard.cure,
        count=incident["count"],
    )


def _bypasses(cold: Examined) -> Iterator[Finding]:
    """Graphs that a cache refuses; the trace knows of which function they are."""
    for layer in ("Inductor", "AOTAutograd"):
        kind = f"bypass {layer}"
        places = [
            cold.trace.place(item.graph)
            for item in cold.trace.lookups
            if item.layer == layer and item.state == "bypass"
        ]
        for item in _incidents(cold, kind):
            if cold.switched_off:
                continue  # its own reason is then that the other cache is off
            yield Finding(
                kind,
                "disease",
                f"{item['reason'].rstrip('.')}; {CONSEQUENCES[kind]}",
                where=next(filter(None, places), ""),
                cure=bypass_cure(item["reason"]),
                count=item["count"],
            )


def _second_start(cold: Examined, local: Examined) -> Iterator[Finding]:
    """What was done again though the directories were filled, where nothing else explains it."""
    counts = local.counts
    if cold.switched_off:
        return
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
    if cold.counts.unsaved:
        yield Finding(
            "not saved",
            "disease",
            "a compiled graph could not be written to the cache: see torch's warnings",
            cure="keep objects that cannot be pickled out of the graph",
            count=cold.counts.unsaved,
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
    """The components of Inductor's keys that differ between the same misses of two starts."""
    before = {
        item.graph: item.components
        for item in cold.lookups
        if (item.layer, item.state) == ("Inductor", "miss")
    }
    found: dict[str, None] = {}
    for item in local.lookups:
        if (item.layer, item.state) == ("Inductor", "miss") and item.graph in before:
            old = before[item.graph]
            names = (*old, *(name for name in item.components if name not in old))
            found |= {n: None for n in names if old.get(n) != item.components.get(n)}
    return list(found)


def _cudagraphs(compiles: Iterable[Compile]) -> Iterator[Finding]:
    found: dict[str, list[Compile]] = {}
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
