"""What a bench says, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from cachesvc.core.arms import COLD, EAGER
from cachesvc.core.bench import Bench, Trial
from cachesvc.core.measure import Arm
from cachesvc.page.wording import digits, listed, seconds, size

_WARM = "warm"
_ENOUGH = 3
_SAME = 1.02


def troubles(bench: Bench) -> tuple[str, ...]:
    """What keeps the figures from being all that was asked for, most serious first."""
    return tuple(_troubles(bench))


def sentences(bench: Bench, trial: Trial) -> tuple[str, ...]:
    """What one variant costs and gives."""
    return tuple(_sentences(bench, trial))


def _troubles(bench: Bench) -> Iterator[str]:
    if bench.interrupted:
        yield "This bench was interrupted: it shows what had been measured until then."
    for failure in bench.failures:
        yield f"No figure for {failure}"
    if not any(trial.arms for trial in bench.trials):
        yield "Nothing was measured."
        return
    for trial in bench.trials:
        if not trial.arms:
            yield f"{trial.variant.label}: no arm was measured."
        for arm in trial.arms:
            if arm.differences:
                told = f"{trial.variant.label}, {arm.name}: the output is not eager's"
                yield f"{told}: {arm.differences[0]}."
        fewer = [arm for arm in trial.arms if len(arm.samples) < bench.runs]
        if fewer:
            told = listed([f"{arm.name} {len(arm.samples)}" for arm in fewer])
            yield f"{trial.variant.label}: fewer than {bench.runs} samples, {told}."
    if _fewest(bench) < _ENOUGH:
        yield (
            f"Fewer than {_ENOUGH} samples of an arm: take these figures as sizes, not as claims."
        )


def _fewest(bench: Bench) -> int:
    return min(len(arm.samples) for trial in bench.trials for arm in trial.arms)


def _sentences(bench: Bench, trial: Trial) -> Iterator[str]:
    eager, cold, warm = (trial.arm(name) for name in (EAGER, COLD, _WARM))
    if cold is not None and warm is not None:
        first = _against(warm.first_call_s.median, cold.first_call_s.median)
        startup = _against(warm.startup_s.median, cold.startup_s.median)
        yield f"Warm, the first call takes {first}."
        yield f"From the start of the process to the first result it takes {startup}."
    yield from _steady(eager, warm or cold)
    yield from _pays(trial, [arm for arm in (cold, warm) if arm is not None])
    if trial.bundle is not None:
        yield f"The bundle takes {size(trial.bundle.bytes)} in the store."


def _steady(eager: Arm | None, compiled: Arm | None) -> Iterator[str]:
    before = eager and eager.steady_s
    after = compiled and compiled.steady_s
    if before and after:
        took = _against(after.median, before.median, slow="eager")
        yield f"After that, a compiled call takes {took}."


def _against(now: float, before: float, slow: str = "") -> str:
    """`3.84 s instead of 38.2 s (9.95 times faster)`."""
    instead = f"{seconds(now)} instead of {seconds(before)}{f' {slow}' if slow else ''}"
    if now <= 0 or before <= 0:
        return instead
    ratio = max(before, now) / min(before, now)
    if ratio < _SAME:
        return f"{instead} (about the same)"
    return f"{instead} ({digits(ratio)} times {'faster' if now < before else 'slower'})"


def _pays(trial: Trial, arms: list[Arm]) -> Iterator[str]:
    known = [(arm.name, pays) for arm in arms if (pays := trial.break_even(arm)) is not None]
    if not known:
        return
    calls = ", ".join(f"{name} {_call(pays.first_call)}" for name, pays in known)
    whole = ", ".join(f"{name} {_call(pays.startup)}" for name, pays in known)
    yield f"Compiling pays, against eager: {calls}; with the whole start counted: {whole}."
    if uncertain := listed([name for name, pays in known if not pays.certain]):
        yield (
            f"Between the steady calls of eager and {uncertain} noise may decide, so from which"
            " call on that pays is not certain."
        )


def _call(number: int | None) -> str:
    return "never" if number is None else f"from call {number:,}"
