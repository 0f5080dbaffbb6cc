"""torch's structured trace: the lines that tlparse reads, as values; torch itself is not needed.

Each line is a prefix, a JSON object, and below it, indented by a tab, the lines of a payload. What
a torch does not write is missing here: the compiler's counters then stand alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachesvc.core.cure import is_limit
from cachesvc.core.digest import Json
from cachesvc.runtime.incidents import place_in

VARIABLE = "TORCH_TRACE"
"""Where torch writes its trace to, read when it is imported."""

OTHERS = ("TORCH_DTRACE",)
"""Variables that would lead the trace elsewhere."""

_WANTED = ('"artifact"', '"compilation_metrics"')
_PLACE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)\s*$", re.MULTILINE)
_FRAME = re.compile(r'^ +File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
_LEADS = r"^(?:(?:Graph Break )?Reason|(?:.*: |torch\.[\w.]+\.)?Unsupported): "
_LEAD = re.compile(_LEADS)
_REASON = re.compile(rf"{_LEADS}(?P<text>.+)$", re.MULTILINE)
_QUOTED = "\nUser code traceback"
_LIMIT = re.compile(r"currently set to (?P<limit>\d{1,9})\b")
_LOOKUP = re.compile(r"(?P<layer>fx_graph|aotautograd)_cache_(?P<state>hit|miss|bypass)$")
_COMPONENT = re.compile(r"\[(?P<digest>\w+)\] (?P<name>[\w.\[\]']+): ")
_TUNING = ("compile_time_autotune_time_us", "runtime_triton_autotune_time_us")
_LAYERS = {"fx_graph": "Inductor", "aotautograd": "AOTAutograd"}


@dataclass(frozen=True, slots=True)
class Break:
    """One graph break: `place` is `file:line`, `reason` what torch says of it, hints included."""

    place: str
    headline: str
    reason: str


@dataclass(frozen=True, slots=True)
class CompileRecord:
    """One compile of a function, or the attempt that the limit refused.

    `frame` is the function's number, `version` which compile of it this is, `guard` the failed
    guard that led to it. Of an attempt that was refused, `limit` is from how many versions on, None
    where torch does not say, and `raised` whether the call failed for it.
    """

    frame: str
    version: int
    place: str = ""
    guard: str = ""
    refused: bool = False
    limit: int | None = None
    raised: bool = False
    cudagraph_skip: str = ""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a cache answered for a graph: `state` is hit, miss or bypass; `graph` its number.

    `components` are digests of what the key is made of, by name.
    """

    layer: str
    state: str
    graph: str
    reason: str = ""
    components: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trace:
    """What a process's compiler wrote down, in order; `tuning_s` is for measuring kernels."""

    breaks: tuple[Break, ...] = ()
    compiles: tuple[CompileRecord, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    tuning_s: float = 0.0

    def place(self, graph: str) -> str:
        """The function that a graph, or a frame, belongs to; empty where it is not told."""
        frame = graph.partition("/")[0]
        return next((c.place for c in self.compiles if c.frame == frame and c.place), "")


def read_trace(folder: Path, besides: Collection[str] = ()) -> Trace:
    """The trace of the processes that wrote into a folder; an empty one if there is none.

    `besides` are names of files that were there before.
    """
    breaks: list[Break] = []
    compiles: list[CompileRecord] = []
    lookups: list[Lookup] = []
    tuning_us = 0
    for name in _names_in(folder):
        if name in besides:
            continue
        with open(folder / name, encoding="utf-8", errors="replace") as file:
            for record, payload in _records(file):
                artifact = str(_mapping(record.get("artifact")).get("name", ""))
                if artifact == "dynamo_graph_break_reason":
                    breaks.append(read_break(payload))
                elif match := _LOOKUP.match(artifact):
                    lookups.append(_lookup(match, record, payload))
                elif metrics := _mapping(record.get("compilation_metrics")):
                    compiles += _compile(metrics)
                    tuning_us += sum(int(metrics.get(name) or 0) for name in _TUNING)
    return Trace(tuple(breaks), tuple(compiles), tuple(lookups), tuning_us / 1e6)


def _records(lines: Iterable[str]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The wanted records, each with its payload."""
    record: Mapping[str, Any] | None = None
    payload: list[str] = []
    for line in lines:
        if line.startswith("\t"):
            payload.append(line[1:])
            continue
        if record is not None:
            yield record, "".join(payload)
        record, payload = _record(line), []
    if record is not None:
        yield record, "".join(payload)


def _record(line: str) -> Mapping[str, Any] | None:
    if not any(name in line for name in _WANTED):
        return None
    try:
        return _mapping(json.loads(line[line.index("{") :]))
    except (ValueError, RecursionError):  # a process that was killed leaves half a line
        return None


def read_break(payload: str) -> Break:
    """A graph break in torch's words, of its trace or of the exception that it raises for one."""
    told = payload.partition("\nTraceback (most recent")[0]
    found = _PLACE.search(told) or next(reversed([*_FRAME.finditer(told)]), None)
    place = f"{found['file']}:{found['line']}" if found else ""
    headline, reason = _reason(payload)
    return Break(place, headline, reason)


def _reason(payload: str) -> tuple[str, str]:
    """The sentence above torch's explanation with the explanation, and all below it with the hints.

    Without an explanation both are what torch calls the reason. The user's code, which a payload
    quotes too, is left out.
    """
    lines = payload.splitlines()
    for number, line in enumerate(lines[1:]):
        if line.strip().startswith("Explanation:"):
            head = _LEAD.sub("", lines[number].strip())
            told = "\n".join(lines[number:]).partition(_QUOTED)[0]
            return f"{head} ({line.strip().removeprefix('Explanation: ')})", told
    match = _REASON.search(payload)
    text = match["text"].strip() if match else "torch gave no reason"
    return text, text


def _compile(metrics: Mapping[str, Any]) -> Iterator[CompileRecord]:
    frame, _, version = str(metrics.get("compile_id") or "").partition("/")
    if not version.isdecimal():
        return  # an attempt of a backward pass has another form, and was told with its forward
    failure = f"{metrics.get('fail_type') or ''}: {metrics.get('fail_reason') or ''}"
    limit = _LIMIT.search(failure) if is_limit(failure) else None
    yield CompileRecord(
        frame=frame,
        version=int(version),
        place=_place(metrics),
        guard=str(metrics.get("recompile_reason") or ""),
        refused=is_limit(failure),
        limit=int(limit["limit"]) if limit else None,
        raised=is_limit(str(metrics.get("fail_type") or "")),
        cudagraph_skip=str(metrics.get("cudagraph_skip_reason") or ""),
    )


def _place(metrics: Mapping[str, Any]) -> str:
    file, name = metrics.get("co_filename"), str(metrics.get("co_name") or "")
    return place_in(str(file), metrics.get("co_firstlineno"), name) if file else ""


def _lookup(match: re.Match[str], record: Mapping[str, Any], payload: str) -> Lookup:
    try:
        told = _mapping(json.loads(payload))
    except (ValueError, RecursionError):
        told = {}
    components = (_COMPONENT.match(str(text)) for text in told.get("components") or ())
    return Lookup(
        layer=_LAYERS[match["layer"]],
        state=match["state"],
        graph=f"{record.get('frame_id', '')}/{record.get('frame_compile_id', '')}",
        reason=str(told.get("cache_bypass_reason") or ""),
        components={item["name"]: item["digest"] for item in components if item},
    )


def _mapping(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".log"))
    except OSError:
        return []
