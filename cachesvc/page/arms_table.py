"""The tables of arms: one line for each arm, and one for each sample."""

from __future__ import annotations

from collections.abc import Iterator

from cachesvc.core.arms import EAGER
from cachesvc.core.bench import Bench, Trial
from cachesvc.core.measure import Arm, Sample
from cachesvc.page.table import NOT_MEASURED, Cell, Table, spread
from cachesvc.page.wording import digits, plain, size

_HEADER = (
    "arm",
    "verdict",
    "first call",
    "process to result",
    "graphs compiled",
    "native builds",
    "steady call",
    "throughput",
    "pays from call",
    "peak memory",
    "difference from eager",
)
_SAMPLES = (
    "variant, arm",
    "sample",
    "verdict",
    "first call, s",
    "process to result, s",
    "steady call, s",
    "graphs compiled",
    "native builds",
    "difference",
    "peak memory",
    "what it said",
)


def arms_table(bench: Bench, trial: Trial) -> Table:
    """Medians, with the least and the most beneath."""
    return Table(
        caption="Medians; beneath, the least and the most of all samples",
        header=_HEADER,
        rows=tuple(_row(bench, trial, arm) for arm in trial.arms),
    )


def samples_table(bench: Bench) -> Table:
    """Every process that was measured."""
    return Table(
        caption="Each line is one fresh process",
        header=_SAMPLES,
        rows=tuple(_samples(bench)),
    )


def _row(bench: Bench, trial: Trial, arm: Arm) -> tuple[Cell, ...]:
    return (
        Cell(arm.name),
        Cell(arm.verdict.value, words=True),
        spread(arm.first_call_s),
        spread(arm.startup_s),
        Cell(f"{max(sample.compiled for sample in arm.samples):,}"),
        Cell(f"{max(sample.native_builds for sample in arm.samples):,}"),
        spread(arm.steady_s),
        _throughput(bench, arm),
        _break_even(trial, arm),
        _memory(arm),
        _difference(sample.difference for sample in arm.samples),
    )


def _throughput(bench: Bench, arm: Arm) -> Cell:
    rate = bench.throughput(arm)
    return Cell(NOT_MEASURED) if rate is None else Cell(digits(rate), f"{bench.unit} per second")


def _break_even(trial: Trial, arm: Arm) -> Cell:
    pays = None if arm.name == EAGER else trial.break_even(arm)
    if pays is None:
        return Cell(NOT_MEASURED if arm.name != EAGER else "")
    first, startup = (_about(number, pays.certain) for number in (pays.first_call, pays.startup))
    return Cell(first, f"whole start: {startup}")


def _about(number: int | None, certain: bool) -> str:
    return _call(number) if certain or number is None else f"about {_call(number)}"


def _call(number: int | None) -> str:
    return "never" if number is None else f"{number:,}"


def _memory(arm: Arm) -> Cell:
    if arm.peak_bytes is None:
        return Cell(NOT_MEASURED)
    device = arm.device_peak_bytes
    return Cell(size(arm.peak_bytes), "" if device is None else f"on the GPU {size(device)}")


def _difference(each: Iterator[float | None]) -> Cell:
    greatest = max((value for value in each if value is not None), default=None)
    return Cell(NOT_MEASURED if greatest is None else f"{greatest:.2g}")


def _samples(bench: Bench) -> Iterator[tuple[Cell, ...]]:
    for trial in bench.trials:
        for arm in trial.arms:
            for number, sample in enumerate(arm.samples, start=1):
                yield _sample(f"{trial.variant.label}, {arm.name}", number, sample)


def _sample(name: str, number: int, sample: Sample) -> tuple[Cell, ...]:
    steady, peak = sample.steady_s, sample.peak_bytes
    return (
        Cell(name),
        Cell(f"{number}"),
        Cell(sample.verdict.value, words=True),
        Cell(f"{sample.first_call_s:.4f}"),
        Cell(f"{sample.startup_s:.4f}"),
        Cell(NOT_MEASURED if steady is None else f"{steady:.6f}"),
        Cell(f"{sample.compiled:,}"),
        Cell(f"{sample.native_builds:,}"),
        _difference(iter((sample.difference,))),
        Cell(NOT_MEASURED if peak is None else size(peak)),
        Cell(plain(sample.summary.partition("\n")[0]), words=True),
    )
