"""Graph breaks, recompiles and bypasses, from the compiler's own records.

Dynamo keeps a record of each compile (place, failed guard) and counts its graph breaks by their
reason; where one of them is missing in a torch, incidents of that kind have no place or no reason,
and the counts stand alone.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cachesvc.core.guard import without_compile
from cachesvc.core.incident import Incident
from cachesvc.runtime.watch import seen

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+?)_at_(?P<line>\d+)$")
_TOLD = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_MOST_TEXT = 300


class IncidentMeter:
    """Collects the incidents from the moment it is made."""

    def __init__(self) -> None:
        self._breaks = graph_breaks()
        self._bypasses = Counter(seen.bypasses)
        # Kept alive: torch lets old records go, and a new one might come to lie where one was.
        self._compiles = {id(item): item for item in compile_records()}

    def read(self) -> tuple[Incident, ...]:
        """The incidents since this meter was made; a program may have cleared torch's records."""
        compiles = self._fresh()
        return tuple(
            sorted(
                (
                    *_graph_breaks(graph_breaks() - self._breaks, compiles),
                    *_recompiles(compiles),
                    *_bypasses(Counter(seen.bypasses) - self._bypasses),
                )
            )
        )

    def recompile_reason(self) -> str:
        """The guard that failed first since this meter was made; empty if none did."""
        return next((incident.reason for incident in _recompiles(self._fresh())), "")

    def _fresh(self) -> list[Any]:
        return [item for item in compile_records() if id(item) not in self._compiles]


def graph_breaks() -> Counter[str]:
    """How often each reason has split a graph in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return Counter({**counters.get("unimplemented", {}), **counters.get("graph_break", {})})


def compile_records() -> tuple[Any, ...]:
    """Dynamo's records of what it compiled, the last ones of this process."""
    read: Callable[[], Iterable[Any]] | None = getattr(
        sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None
    )
    return tuple(read()) if read is not None else ()


def _graph_breaks(reasons: Counter[str], compiles: Sequence[Any]) -> Iterator[Incident]:
    """One incident for each reason and place; the place is where Python goes on."""
    places = dict(_places(compiles))
    for reason, count in reasons.items():
        told = _TOLD.search(reason)
        place = f"{Path(told['file']).name}:{told['line']}" if told else places.get(reason, "")
        yield Incident("graph break", headline(reason), place, count)


def _places(compiles: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The reasons for which a function was traced again, each with the place of the break.

    The function that goes on after a break is compiled next; its name says the line.
    """
    for number, item in enumerate(compiles):
        after = (_resumed_at(later) for later in compiles[number + 1 :])
        place = next((place for place in after if place), "")
        for reason in getattr(item, "restart_reasons", None) or ():
            yield str(reason), place


def _resumed_at(compiled: Any) -> str:
    return place_of(compiled) if is_resumed(compiled) else ""


def is_resumed(compiled: Any) -> bool:
    """Whether a code object, or a record of its compile, is what comes after a break."""
    return _RESUMED.match(str(getattr(compiled, "co_name", "") or "")) is not None


def place_of(compiled: Any) -> str:
    """The place of a code object, or of a record of its compile; of a rest, where it goes on."""
    file = Path(str(getattr(compiled, "co_filename", "") or "")).name
    name = str(getattr(compiled, "co_name", "") or "")
    return place_in(file, getattr(compiled, "co_firstlineno", ""), name)


def place_in(file: str, line: object, name: str) -> str:
    """`file:line in function` for a code object's file, first line and name; of what comes after
    a break, where the function goes on."""
    resumed = _RESUMED.match(name)
    if resumed is None:
        return f"{file}:{line} in {name}"
    return f"{file}:{resumed['line']} in {resumed['name']}"


def failed_guard(record: Any) -> str:
    """The guard for which a function was compiled again; empty if it was not."""
    reason = str(getattr(record, "recompile_reason", None) or "")
    return headline(without_compile(reason)) if reason else ""


def _recompiles(compiles: Sequence[Any]) -> Iterator[Incident]:
    guards = ((failed_guard(item), place_of(item)) for item in compiles)
    found = Counter((guard, place) for guard, place in guards if guard)
    for (reason, place), count in found.items():
        yield Incident("recompile", reason, place, count)


def _bypasses(reasons: Counter[tuple[str, str]]) -> Iterator[Incident]:
    for (layer, reason), count in reasons.items():
        yield Incident(f"bypass {layer}", headline(reason), "", count)


def headline(text: str) -> str:
    """The first line, and the explanation where torch gives one, on one line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    told = next((line for line in lines if line.startswith("Explanation:")), "")
    head = lines[0] if lines else "no reason was given"
    return " ".join(filter(None, (head, told and f"({told.removeprefix('Explanation: ')})")))[
        :_MOST_TEXT
    ]
