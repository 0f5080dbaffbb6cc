"""The example calls of a start, and the report of what the compiler counted meanwhile."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from cachesvc.core.components import Components
from cachesvc.core.report import CallReport, Report
from cachesvc.runtime import counters, directories
from cachesvc.runtime.calls import Call, example_calls
from cachesvc.runtime.compiler import do_without_compiler, eager_graphs
from cachesvc.runtime.compiler import notes as uncompiled
from cachesvc.runtime.incidents import IncidentMeter
from cachesvc.start.attempt import Attempt
from cachesvc.start.check import CHANGES, Check, Outcome
from cachesvc.start.choice import tier_reason
from cachesvc.start.rescue import Rescue
from cachesvc.start.target import address_name, named_models

_UNSTORED = (
    "AOTAutograd has stored nothing for {} graphs, so each start traces them again: a graph with"
    " gradients is stored after its backward pass; make the calls under torch.no_grad(), or give"
    " whole training steps"
)
_NOT_AT_FAULT = (
    "the output of {} is {}; so it is without the caches: the compiler or the model is at fault"
)
_EAGER = (
    "on_miss is eager and nothing of a bundle can be used: the model runs as it was written, unless"
    " torch.compile is called on it after this start"
)
_ALL_EAGER = (
    "a compiled function cannot be changed in place, so everything in this process runs as it was"
    ' written, until torch.compiler.set_stance("default")'
)


def prove(
    attempt: Attempt,
    inputs: Sequence[Any] | Mapping[str, Any] | None,
    calls: Iterable[Any] | None,
    *,
    hooked: bool = True,
) -> Report:
    """Makes the calls and reports what the compiler counted meanwhile."""
    compile_it = not _as_written(attempt)
    if hooked:
        do_without_compiler()
    proof = _Proof(attempt, hooked)
    try:
        given = example_calls(attempt.model, inputs, calls, compiled=compile_it)
        with proof.rescue.watching() if given else nullcontext():
            for call in given:
                attempt.progress(f"call {call.signature}")
                proof.make(call)
    except Exception as error:  # the caller's own call will show it again, in its own place
        attempt.notes.append(f"an example call failed: {type(error).__name__}: {error}")
    return proof.report()


def _as_written(attempt: Attempt) -> bool:
    """Whether the model is to run as it was written, because the caller wants it so at a miss."""
    if attempt.options.on_miss != "eager" or attempt.brought.is_usable:
        return False
    from cachesvc.runtime.eager import run_all_eagerly, run_eagerly

    attempt.notes.append(_EAGER)
    done = [run_eagerly(model) for model in named_models(attempt.model).values()]
    if not all(done):
        run_all_eagerly()
        attempt.notes.append(_ALL_EAGER)
    return True


@dataclass
class _Proof:
    """The calls of one attempt, and the meters that run meanwhile."""

    attempt: Attempt
    hooked: bool
    made: list[CallReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        live = self.attempt.live
        self.before = counters.compiled_so_far() > 0
        self.triton = directories.triton_folder(live) if live else None
        self.incidents = IncidentMeter()
        self.eager = eager_graphs()
        self.rescue = Rescue(self.attempt, is_alone=not self.before, again=self.count_anew)
        self.count_anew()

    def count_anew(self) -> None:
        """Counts from now on: what was compiled or found before is not in use any more."""
        self.meter = counters.Meter(self.triton, hooked=self.hooked)
        self.counted = self.meter.read()

    def make(self, call: Call) -> None:
        """Makes one call, and compares its output if the caller wants that."""
        check = Check(self.attempt) if self.attempt.options.check else None
        if check is not None:
            check.before(call)
        output, seconds = self.rescue.make(call)
        outcome = Outcome("") if check is None else check.after(call, output)
        if check is not None and outcome.wrong and self._hit():
            outcome, more = self._without_caches(call, check, outcome)
            seconds += more
        known = self.attempt.brought.coverage
        before, self.counted = self.counted, self.meter.read()
        self.made.append(
            CallReport(
                signature=call.signature,
                seconds=seconds,
                counts=self.counted.minus(before),
                covered=call.signature in known if known else None,
                checked=outcome.said,
            )
        )

    def _hit(self) -> bool:
        """Whether anything that this process uses came from a cache."""
        counts = self.meter.read()
        return counts.hits + counts.cpp_hits > 0

    def _without_caches(self, call: Call, check: Check, wrong: Outcome) -> tuple[Outcome, float]:
        """The outcome of the call made again, and its seconds; what came from a cache is set aside
        if it was at fault."""
        changes = not check.is_unchanged(call)
        reason = f"the output of {call.signature} was {wrong.said}"
        output, seconds = self.rescue.make_apart(call, reason)
        if changes:
            return Outcome(
                f"{CHANGES}; made again without the caches; with them {wrong.said}"
            ), seconds
        outcome = check.after(call, output)
        if outcome.wrong:
            self.rescue.take_back()
            self.attempt.notes.append(_NOT_AT_FAULT.format(call.signature, outcome.said))
            return outcome, seconds
        return Outcome(f"{outcome.said}, without the caches; with them {wrong.said}"), seconds

    def report(self) -> Report:
        attempt, brought = self.attempt, self.attempt.brought
        counts, incidents = self.meter.read(), self.incidents.read()
        first = self.made[0].seconds if self.made else None
        stages = [*attempt.stages, *([] if first is None else [("first call", first)])]
        unstored = max(0, self.meter.unstored() - counts.eager)
        later = attempt.functions.notes if attempt.functions else []
        notes = [*attempt.notes, *later, *([_UNSTORED.format(unstored)] if unstored else [])]
        notes += uncompiled(self.eager)
        settled = bool(self.made)
        return Report(
            tier_reason=tier_reason(attempt),
            name=attempt.label or address_name(attempt.model, None),
            read_counts=(lambda: counts) if settled else self.meter.read,
            read_incidents=(lambda: incidents) if settled else self.incidents.read,
            called=settled,
            bundle=brought.newest,
            store=attempt.repository.store.url if attempt.repository else None,
            tier=attempt.tier,
            live=str(attempt.live.root) if attempt.live else None,
            late=attempt.late,
            compiled_before=self.before,
            transfer=brought.transfer,
            stages=tuple(stages),
            first_call_s=first,
            cold_s=brought.cold_s,
            calls=tuple(self.made),
            fallback=bool(attempt.chosen.differences) and brought.is_usable,
            set_aside=tuple(dict.fromkeys((*attempt.set_aside(), *self.rescue.told()))),
            notes=tuple(dict.fromkeys(notes)),  # a second look may say the same again
            model=attempt.goal.model if attempt.goal else Components(),
            suspects=frozenset(self.rescue.aside),
            made_apart=self.rescue.made_apart,
            prefetched=attempt.ahead.overlap if attempt.ahead else None,
            read_model=_reference(attempt.model),
        )


def _reference(model: Any) -> Callable[[], object]:
    """What gives the model while it lives; None of several, which no call is made of by itself."""
    try:
        return weakref.ref(model)
    except TypeError:
        return lambda: None
