"""Findings about code that was compiled again for other inputs, or not any more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cachesvc.core.cure import is_limit
from cachesvc.core.finding import Finding
from cachesvc.core.guard import Guard, read_guard
from cachesvc.runtime.trace import CompileRecord
from cachesvc.start.examined import Examined

LIMIT = "recompile limit"

_EAGER = "this runs as it was written, uncompiled"
_RAISES = "a call fails, because fullgraph=True lets nothing run as it was written"

_SHOWN_VALUES = 6
# Of the versions that a function may have; from here on the limit is near.
_NEAR = 0.5

# The function that `compile_regions` makes for a kind of block, named by it and its structure.
_REGION = re.compile(r"(?:^|/cachesvc/runtime/)regions\.py:\d+ in \w+_[0-9a-f]{8}$")


def limits(cold: Examined) -> Iterator[Finding]:
    """From the trace, which knows the function and what changed; else as the counters tell."""
    refused = [item for item in cold.trace.compiles if item.refused]
    for item in refused:
        versions = _of_limit(item.version, item.limit or cold.recompile_limit)
        yield Finding(
            LIMIT,
            "disease",
            f"{versions} are used: for further inputs {_RAISES if item.raised else _EAGER}",
            where=cold.trace.place(item.frame),
            cure=limit_cure(item.guard),
        )
    for told in () if refused else cold.incidents("graph break"):
        if is_limit(told["reason"]):
            yield Finding(
                LIMIT,
                "disease",
                "a function has as many versions as it may: for further inputs it runs as it was"
                " written, uncompiled",
                where=told["place"],
                cure=limit_cure(""),
                count=told["count"],
            )


def limit_cure(guard: str) -> str:
    """By the guard that failed last; where it is not told, the recompiles have their own cures."""
    raised = "raise torch._dynamo.config.recompile_limit above the number of versions that are"
    first = f"{read_guard(guard).cure}; or " if guard else ""
    return f"{first}{raised} needed"


def _of_limit(versions: int, limit: int | None) -> str:
    """With the limit, unless there are more: then it is not the one that counts there."""
    if limit is None or versions > limit:
        return f"{versions} versions"
    return f"{versions} of {limit} versions"


def recompiles(cold: Examined) -> Iterator[Finding]:
    """One for each function and what changed there; a refused one counts as no compile."""
    by_cause: dict[tuple[str, str], list[tuple[CompileRecord, Guard]]] = {}
    for item in cold.trace.compiles:
        if item.guard and not item.refused:
            guard = read_guard(item.guard)
            cause = (cold.trace.place(item.frame), guard.subject)
            by_cause.setdefault(cause, []).append((item, guard))
    for (place, subject), group in by_cause.items():
        yield _recompile(cold, place, subject, group)
    if not cold.trace.compiles:
        yield from map(_recompile_told, cold.incidents("recompile"))


def _recompile(
    cold: Examined, place: str, subject: str, group: Sequence[tuple[CompileRecord, Guard]]
) -> Finding:
    frame, guard = group[0][0].frame, group[0][1]
    same = [item for item in cold.trace.compiles if item.frame == frame]
    versions = 1 + max(item.version for item in same if not item.refused)
    limit = next((item.limit for item in same if item.limit), cold.recompile_limit)
    near = versions > _NEAR * (limit or versions) and versions <= (limit or versions)
    values = _values(item for _, item in group)
    sick = not _is_region(place) and (guard.curable or near)
    return Finding(
        "recompile",
        "disease" if sick else "hint",
        f"{subject} changed{values}, and the code was compiled again;"
        f" {_used(place, versions, limit)}",
        where=place,
        cure=guard.cure,
        count=len(group),
    )


def _used(place: str, versions: int, limit: int | None) -> str:
    if _is_region(place):
        return f"{versions} versions serve the blocks of this kind, each with a limit of its own"
    return f"{_of_limit(versions, limit)} are used"


def _is_region(place: str) -> bool:
    """Whether a function is that of a kind of block: blocks that differ have a version each."""
    return _REGION.search(place) is not None


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
        "disease" if guard.curable and not _is_region(incident["place"]) else "hint",
        f"{guard.subject} changed{_values([guard])}, and the code was compiled again",
        where=incident["place"],
        cure=guard.cure,
        count=incident["count"],
    )
