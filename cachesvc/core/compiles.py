"""Compiles that come after a start: each with the call that caused it, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cachesvc.core.digest import Json
from cachesvc.core.report import Counts, counts_json

NOTHING = Counts()
_MOST_TEXT = 1000

OUTCOMES = {
    "compiled": "publish what was compiled, or give such calls when the bundle is made",
    "hit": "found in the caches: it was traced, as each process does at the first such call",
    "traced": "no cache was asked: the backend is another one, or there was no graph",
    "recorded": "each process records its CUDA graphs anew: no cache keeps them",
    "eager": "such code runs as it was written from now on, as slow as without torch.compile",
    "failed": "the call that asked for it has raised this, too; nothing of it is published",
}
"""What can come of a compile, each with its meaning."""


@dataclass(frozen=True, slots=True)
class Compile:
    """One compile of a process, and the call that caused it.

    kind: "first compile"; "recompile" of a function for a call that its compiled code does not
        fit; "resume", the rest of a function after a graph break; "backward", which waits for its
        first use; "autotuning" of a kernel at its first use; "recording" of a CUDA graph.
    function: the place of what was compiled, or the name of a kernel.
    call: the signature of the call, as in a report's `calls`; empty where it is not known.
    caller: the place in the program that made the call. Places are `file:line in function`, the
        file being the last part of its path.
    reason: of a recompile, the guard that failed; of a resume, what broke the graph.
    failure: what was raised, empty if nothing was. `as_written`: that did not reach the caller;
        the function runs as it was written.
    seconds: how long it took; `when` is its beginning, in seconds since 1970 UTC.
    counts: what the compiler counted meanwhile, also for another thread.
    entries, limit: how many compiled versions of the function there were before, and from how many
        on it is compiled no more; None where that is not known.
    covered: whether the start was given such a call; None where it was given none, and for a call
        of something else than the model that was started.
    """

    kind: str
    function: str
    call: str = ""
    caller: str = ""
    reason: str = ""
    failure: str = ""
    as_written: bool = False
    seconds: float = 0.0
    when: float = 0.0
    counts: Counts = NOTHING
    entries: int | None = None
    limit: int | None = None
    thread: str = ""
    covered: bool | None = None

    @property
    def outcome(self) -> str:
        """A key of OUTCOMES; "hit" only if every layer that was asked answered from its cache and
        nothing native was built."""
        counts = self.counts
        if self.as_written or (counts.eager and not counts.compiled):
            return "eager"
        if self.failure:
            return "failed"
        if self.kind == "recording":
            return "recorded"
        if counts.compiled or counts.native_builds or counts.autotunings:
            return "compiled"
        return "hit" if counts.hits or counts.cpp_hits else "traced"

    def __str__(self) -> str:
        said = "".join(self._said())
        return f"{self.outcome} in {self.seconds:.2f} s: {self.kind} of {self.function}{said}"

    def _said(self) -> Iterator[str]:
        if self.call:
            yield f" for {self.call[:_MOST_TEXT]}"
        if self.caller:
            yield f" at {self.caller}"
        if self.covered is False:
            yield ", a call that the start was not given"
        if self.counts.native_builds:
            yield f"; {self.counts.native_builds} native builds"
        if self.counts.autotunings:
            yield f"; {self.counts.autotunings} autotunings"
        if self.counts.graph_bypasses:
            yield "; no cache keeps it: each start compiles it"
        if self.reason:
            yield f"; {self.reason}"
        if self.entries and self.limit:
            yield f" ({self.entries} of {self.limit} versions were there)"
        if self.failure:
            yield f"; {self.failure}"

    def to_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "outcome": self.outcome,
            "function": self.function,
            "call": self.call,
            "caller": self.caller,
            "reason": self.reason,
            "failure": self.failure,
            "seconds": self.seconds,
            "when": self.when,
            "counts": counts_json(self.counts),
            "entries": self.entries,
            "limit": self.limit,
            "thread": self.thread,
            "covered": self.covered,
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """How many compiles there were, by outcome, and their counts and seconds in all."""

    outcomes: tuple[tuple[str, int], ...] = ()
    counts: Counts = NOTHING
    seconds: float = 0.0

    @property
    def number(self) -> int:
        return sum(count for _, count in self.outcomes)

    def plus(self, compiled: Compile) -> Tally:
        """With one more."""
        numbers = dict(self.outcomes)
        numbers[compiled.outcome] = numbers.get(compiled.outcome, 0) + 1
        return replace(
            self,
            outcomes=tuple((name, numbers[name]) for name in OUTCOMES if name in numbers),
            counts=self.counts.plus(compiled.counts),
            seconds=self.seconds + compiled.seconds,
        )

    def __str__(self) -> str:
        if not self.outcomes:
            return "nothing was compiled"
        each = ", ".join(f"{count} {name}" for name, count in self.outcomes)
        word = "compile" if self.number == 1 else "compiles"
        return f"{self.number} {word} in {self.seconds:.1f} s: {each}"

    def meanings(self) -> Iterator[str]:
        """A sentence for each outcome that there was."""
        for name, _ in self.outcomes:
            yield f"{name}: {OUTCOMES[name]}"

    def to_json(self) -> dict[str, Json]:
        return {
            "number": self.number,
            "outcomes": dict(self.outcomes),
            "seconds": self.seconds,
            "counts": counts_json(self.counts),
        }
