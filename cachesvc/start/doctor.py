"""doctor: what keeps this machine, and a model, from compiling once and starting warm."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cachesvc.core.digest import Json
from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.core.finding import Diagnosis, Finding
from cachesvc.local.whole import disk_errors
from cachesvc.runtime.trace import OTHERS, VARIABLE, Trace, read_trace
from cachesvc.runtime.workloads import check_target
from cachesvc.start.checkup import Checkup
from cachesvc.start.diagnose import diagnose
from cachesvc.start.examined import Examined
from cachesvc.start.failed import failure
from cachesvc.start.given_path import directory
from cachesvc.start.process import fresh_environment, run_program, workplace
from cachesvc.start.progress import Progress, quiet

EXAMINATION = "cachesvc.start.examination"
STARTS = ("cold", "local")
"""The two starts of a target: with empty directories, and with those that the first has filled."""

_SHARED = "shared"
_SHOWN_CALLS = 5


def doctor(
    target: str | None = None,
    *,
    trace: str | os.PathLike[str] | None = None,
    progress: Progress = quiet,
) -> Diagnosis:
    """Examines this machine and, where one is named, a target (`module:function`, `demo:NAME`).

    The machine is examined without importing torch: directories, compilers, variables that switch
    caches off, what was set aside, caches of other compilers. A target is started twice, in fresh
    processes with directories of their own, cold and on what the first start has left; graph
    breaks, recompiles, bypasses and what was done again are told, each with the change that cures
    it. `trace` is a directory to keep torch's structured trace in, which tlparse reads, in `cold`
    and `local`.

    A start that fails, or cannot be made on this machine, is a disease, told with all else that was
    found. Changes nothing of the user's. Raises UsageError if the target is none, TccacheError if
    the trace cannot be kept.
    """
    if target is not None:
        check_target(target)
    progress("look at this machine")
    machine = Checkup()
    machine.look()
    if target is None or not machine.has_torch:
        return Diagnosis(
            target, tuple(machine.findings), {"machine": machine.facts}, tuple(machine.told)
        )
    kept = None if trace is None else _made(directory(trace))
    return _with_target(machine, target, kept, progress)


def _made(trace: Path) -> Path:
    """The directory for the trace, with one for each start in it."""
    for name in STARTS:
        with disk_errors(trace / name):
            (trace / name).mkdir(parents=True, exist_ok=True)
    return trace


class _StartFailed(TccacheError):
    """A start that failed, and the trace that it has left."""

    def __init__(self, error: TccacheError, trace: Trace) -> None:
        super().__init__(str(error))
        self.trace = trace


def _with_target(machine: Checkup, target: str, kept: Path | None, progress: Progress) -> Diagnosis:
    starts: dict[str, Examined] = {}
    facts: dict[str, Json] = {"machine": machine.facts}
    failed: tuple[Finding, ...] = ()
    try:
        with workplace("doctor") as scratch:
            for name in STARTS:
                progress(f"{name} start of {target}")
                trace = (kept or scratch / "traces") / name
                starts[name] = _examined(target, name, scratch, trace)
    except UsageError:
        raise
    except (TccacheError, OSError, ValueError) as error:  # a full disk leaves half a JSON file
        left = error.trace if isinstance(error, _StartFailed) else Trace()
        failed = (failure(str(error), left),)
        facts["failure"] = str(error)
    cold, local = (starts.get(name) for name in STARTS)
    found = diagnose(cold, local, os.environ) if cold else ()
    facts |= {
        "starts": {name: _facts(item) for name, item in starts.items()},
        "coverage": list(cold.report["coverage"]) if cold else [],
        "recompile_limit": cold.recompile_limit if cold else None,
        "trace": None if kept is None else str(kept),
    }
    told = tuple(_told(cold, local)) if cold and local else ()
    return Diagnosis(target, (*failed, *found, *machine.findings), facts, told)


def _examined(target: str, name: str, scratch: Path, trace: Path) -> Examined:
    """One start in a fresh process; both have the same directories, as on one machine."""
    shared, own = scratch / _SHARED, scratch / name
    for folder in (shared, own, trace):
        folder.mkdir(parents=True, exist_ok=True)
    earlier = frozenset(os.listdir(trace))
    environ = {**fresh_environment(shared, caches=shared), VARIABLE: str(trace)}
    try:
        outcome: dict[str, Any] = run_program(
            EXAMINATION,
            json.dumps({"target": target, "filled": name == "local"}),
            own,
            environ={key: value for key, value in environ.items() if key not in OTHERS},
            cwd=own if target.startswith("demo:") else None,
            failing=f"the {name} start of {target} failed",
        )
    except UsageError:
        raise
    except TccacheError as error:
        raise _StartFailed(error, read_trace(trace, besides=earlier)) from error
    return Examined(
        outcome["report"],
        read_trace(trace, besides=earlier),
        tuple(outcome["switched_off"]),
        outcome["recompile_limit"],
    )


def _facts(start: Examined) -> dict[str, Json]:
    return {
        "verdict": start.report["verdict"],
        "first_call_s": start.report["first_call_s"],
        "counts": start.report["counts"],
    }


def _told(cold: Examined, local: Examined) -> Iterator[str]:
    hits, compiled = local.counts.hits, local.counts.compiled
    graphs = "graph" if hits == 1 else "graphs"
    yield f"{hits} {graphs} from cache at the second start, {compiled} compiled"
    first, again = cold.report["first_call_s"], local.report["first_call_s"]
    if first is not None and again is not None:
        yield f"first call {again:.2f} s (cold was {first:.1f} s)"
    yield _covered(cold.report["coverage"])


def _covered(calls: Sequence[str]) -> str:
    """The calls that were made; what has another shape was not examined."""
    different = list(dict.fromkeys(calls))
    more = f" and {len(different) - _SHOWN_CALLS} more" if len(different) > _SHOWN_CALLS else ""
    return f"examined with {'; '.join(different[:_SHOWN_CALLS])}{more}"
