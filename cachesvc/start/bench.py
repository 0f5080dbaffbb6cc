"""bench: a workload started in all ways, compiled in several, each sample in a fresh process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachesvc.core.arms import ARMS, COLD, EAGER, ENOUGH
from cachesvc.core.bench import Bench, Composition, Failure, Trial
from cachesvc.core.components import Components
from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.core.measure import Sample, arms_of
from cachesvc.core.remaining import Remaining, told
from cachesvc.core.variant import Variant
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.local.host import read_environment
from cachesvc.runtime.workloads import check_target
from cachesvc.start.access import PRIVATE, TrustLike, access
from cachesvc.start.clock import now
from cachesvc.start.inspect import show
from cachesvc.start.process import workplace
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.publishing import require_key
from cachesvc.start.sampler import EXPECTED, Sampler
from cachesvc.start.settings import open_repository


def bench(
    target: str,
    *,
    runs: int = ENOUGH,
    variants: Sequence[Variant] = (Variant(),),
    options: WorkloadOptions = WorkloadOptions(),
    arms: Sequence[str] = ARMS,
    calls: int = 20,
    store: str | os.PathLike[str] | None = None,
    trust: TrustLike | None = None,
    command: str = "",
    progress: Progress = quiet,
) -> Bench:
    """Measures starts and calls of a workload.

    Every sample is a fresh process with directories of its own; arms and variants take turns,
    `runs` times. The eager arm is the same for all variants. After its first round of calls each
    process makes up to `calls` more, at least three and for about three seconds. What the cold
    arms compile is published to the store; without one to a temporary local one. `command` is kept
    for whoever wants to make the same again.

    An arm that fails, or is not what its label says, becomes a Failure, and is not measured
    again; so are those that need what a cold one leaves. An interrupt ends the measuring, and what
    was measured comes back.

    Raises UsageError for a target, arm or number that is none, TccacheError if the workload does
    not even run eagerly, and UntrustedError, StoreError, AccessDenied for the store.
    """
    check_target(target)
    _check(runs, variants, arms, calls)
    with workplace("bench") as scratch:
        place = str(store) if store is not None else str(scratch / "store")
        said = PRIVATE if store is None else access(trust)
        opened = open_repository(place, said, signs=True)
        require_key(opened)
        url = opened.store.url
        sampler = Sampler(target, place, said, scratch, options, calls)
        measuring = _Measuring(sampler, runs, tuple(variants), _in_order(arms), progress)
        interrupted = measuring.all()
        return Bench(
            target=target,
            workload=measuring.facts["workload"],
            options=options,
            runs=runs,
            trials=tuple(measuring.trials()),
            store="a temporary local store" if store is None else url,
            environment=read_environment(),
            context=measuring.context,
            created=now(),
            items=measuring.facts["items"],
            unit=measuring.facts["unit"],
            command=command,
            failures=tuple(measuring.failures),
            interrupted=interrupted,
        )


def _check(runs: int, variants: Sequence[Variant], arms: Sequence[str], calls: int) -> None:
    if runs < 1 or calls < 1:
        raise UsageError("a bench needs one run and one call at least")
    if unknown := [arm for arm in arms if arm not in EXPECTED]:
        raise UsageError(f"there is no arm {unknown[0]}: choose of {', '.join(ARMS)}")
    labels = [variant.label for variant in variants]
    if not labels or len(set(labels)) < len(labels):
        raise UsageError("a bench needs one variant at least, and each only once")


def _in_order(arms: Sequence[str]) -> tuple[str, ...]:
    """The arms in the order in which they are made; all of them need the cold one or eager."""
    return tuple(arm for arm in ARMS if arm in (EAGER, COLD, *arms))


@dataclass
class _Measuring:
    """A bench under way."""

    sampler: Sampler
    runs: int
    variants: tuple[Variant, ...]
    arms: tuple[str, ...]
    progress: Progress
    facts: dict[str, Any] = field(default_factory=dict)
    context: Components = Components()
    failures: list[Failure] = field(default_factory=list)
    _samples: dict[str, list[Sample]] = field(default_factory=dict)
    _notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _bundles: dict[str, Composition] = field(default_factory=dict)
    _remaining: Remaining = field(default_factory=Remaining)

    def all(self) -> bool:
        """Makes all samples; whether an interrupt ended that early, after the first of them."""
        plan = list(self._plan())
        try:
            for number, (run, variant, arm) in enumerate(plan):
                self._announce(plan[number:])
                self._make(run, variant, arm)
                if arm == self.arms[-1]:
                    self.sampler.clear(run, variant)
        except KeyboardInterrupt:
            if not self.facts:
                raise
            return True
        return False

    def _plan(self) -> Iterator[tuple[int, Variant, str]]:
        for run in range(self.runs):
            yield run, self.variants[0], EAGER
            for variant in self.variants:
                yield from ((run, variant, arm) for arm in self.arms if arm != EAGER)

    def _announce(self, left: Sequence[tuple[int, Variant, str]]) -> None:
        run, variant, arm = left[0]
        steps = [(v.label, a) for _, v, a in left if not self._is_out(v, a)]
        seconds = self._remaining.seconds(steps)
        what = arm if arm == EAGER or len(self.variants) == 1 else f"{variant.label} {arm}"
        time_left = "" if seconds is None else f"; about {told(seconds)} left"
        self.progress(f"run {run + 1} of {self.runs}: {what}{time_left}")

    def _make(self, run: int, variant: Variant, arm: str) -> None:
        if self._is_out(variant, arm):
            return
        started = time.monotonic()
        try:
            sample = self.sampler.sample(arm, run, variant)
            self._note(variant, self.sampler.outcome)
        except (TccacheError, OSError) as error:
            if not self.facts:  # it does not even run eagerly
                raise
            self.failures.append(Failure(variant.label, arm, str(error)))
            return
        self._remaining.done((variant.label, arm), time.monotonic() - started)
        self._samples.setdefault(variant.label, []).append(sample)

    def _note(self, variant: Variant, outcome: dict[str, Any]) -> None:
        self.facts = self.facts or {name: outcome[name] for name in ("workload", "items", "unit")}
        if "context" in outcome:
            self.context = self.context or Components.of(outcome["context"])
            self._notes[variant.label] = tuple(outcome["notes"])
        if "published" in outcome:
            self._bundles[variant.label] = self._composition(outcome["published"]["address"])

    def _is_out(self, variant: Variant, arm: str) -> bool:
        """Whether it, or the cold arm that it starts from, has failed."""
        failed = {failure.arm for failure in self.failures if failure.variant == variant.label}
        return arm in failed or (arm != EAGER and COLD in failed)

    def trials(self) -> Iterator[Trial]:
        """What came of each variant of which something was measured."""
        eager = [s for each in self._samples.values() for s in each if s.arm == EAGER]
        for variant in self.variants:
            failed = {item.arm for item in self.failures if item.variant == variant.label}
            own = [s for s in self._samples.get(variant.label, ()) if s.arm not in {EAGER, *failed}]
            notes = self._notes.get(variant.label, ())
            bundle = self._bundles.get(variant.label)
            yield Trial(variant, arms_of([*eager, *own]), bundle, notes)

    def _composition(self, address: str) -> Composition:
        sampler = self.sampler
        (detail,) = show(address, store=sampler.store, trust=sampler.access)
        return Composition(address, detail.listing.bytes, detail.sections)
