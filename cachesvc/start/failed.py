"""What a start of a target failed of, by its own words and the trace that it has left."""

from __future__ import annotations

import re

from cachesvc.core.cure import break_cure, is_limit
from cachesvc.core.finding import Finding
from cachesvc.runtime.trace import Trace, read_break
from cachesvc.start.diagnose import shortened
from cachesvc.start.recompiles import LIMIT, limit_cure

_FAILED = re.compile(r"(?:an example call failed: |torch\._dynamo\.exc\.)(?P<kind>[A-Za-z_]\w*)")


def failure(error: str, trace: Trace | None = None) -> Finding:
    """What keeps a target from being examined, by the words in which a start of it failed, and the
    trace that it has left."""
    found = _FAILED.search(error)
    kind = found["kind"] if found else ""
    if found and kind == "Unsupported":
        return shortened(_refused_break(error[found.start("kind") :]))
    if is_limit(kind):
        return shortened(_refused_version(trace or Trace()))
    return shortened(_failed_call(_in_short(error)))


def _failed_call(what: str) -> Finding:
    return Finding(
        "call failed",
        "disease",
        what,
        cure="cure what is found of this machine; then make the calls with"
        " TORCH_COMPILE_DISABLE=1: if they fail as well, it is the model, or what it is given",
    )


def _in_short(error: str) -> str:
    """The end of a program's own words, where they are a traceback."""
    head, failed, words = error.partition(" failed: ")
    if '  File "' not in words or words.startswith("an example call"):
        return error
    return f"{head}{failed}{words.strip().splitlines()[-1]}"


def _refused_break(error: str) -> Finding:
    broken = read_break(error)
    return Finding(
        "graph break",
        "disease",
        f"no call can be made, because fullgraph=True allows none: {broken.headline}",
        where=broken.place,
        cure=break_cure(broken.reason),
    )


def _refused_version(trace: Trace) -> Finding:
    """Where no graph break is allowed, a call fails that no version fits."""
    refused = next((item for item in trace.compiles if item.refused), None)
    return Finding(
        LIMIT,
        "disease",
        "a call failed: no compiled version of the function fits it, there are as many as there may"
        " be, and fullgraph=True lets nothing run as it was written",
        where=trace.place(refused.frame) if refused else "",
        cure=limit_cure(refused.guard if refused else ""),
    )
