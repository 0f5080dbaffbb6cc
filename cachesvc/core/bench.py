"""A bench: one workload, compiled in several ways, started in several ways, on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cachesvc.core.arms import COLD, EAGER, ENOUGH
from cachesvc.core.break_even import break_even
from cachesvc.core.components import Components
from cachesvc.core.digest import Json
from cachesvc.core.measure import Arm, Spread
from cachesvc.core.variant import Variant
from cachesvc.core.workload_options import WorkloadOptions


@dataclass(frozen=True, slots=True)
class Composition:
    """What a bundle holds: its bytes in the store, and units, files and bytes of each section."""

    address: str
    bytes: int
    sections: Mapping[str, tuple[int, int, int]]

    def to_json(self) -> dict[str, Json]:
        sections: dict[str, Json] = {
            name: {"units": units, "files": files, "bytes": size}
            for name, (units, files, size) in self.sections.items()
        }
        return {"address": self.address, "bytes": self.bytes, "sections": sections}


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From which call on an arm has taken less time than the eager one; None for never.

    `first_call` counts from the call of `warm_start` or of the model, `startup` from the start of
    the process. It is `certain` where three samples of each arm were made, and those of their
    steady seconds do not overlap: else noise may decide which of them is faster.
    """

    first_call: int | None
    startup: int | None
    certain: bool = True

    def to_json(self) -> dict[str, Json]:
        return {"first_call": self.first_call, "startup": self.startup, "certain": self.certain}


@dataclass(frozen=True, slots=True)
class Trial:
    """One variant of a bench: its arms, and the bundle that its cold arm published.

    `notes` say what was chosen as regions.
    The eager arm is the same in all trials of a bench: nothing is compiled there.
    """

    variant: Variant
    arms: tuple[Arm, ...]
    bundle: Composition | None = None
    notes: tuple[str, ...] = ()

    def arm(self, name: str) -> Arm | None:
        """An arm by its name; None if it was not measured."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def break_even(self, arm: Arm) -> BreakEven | None:
        """None where eager or this arm has no steady calls."""
        eager = self.arm(EAGER)
        if eager is None or eager.steady_s is None or arm.steady_s is None:
            return None
        return BreakEven(
            first_call=_crossing(arm, eager, arm.first_call_s.median, eager.first_call_s.median),
            startup=_crossing(arm, eager, arm.startup_s.median, eager.startup_s.median),
            certain=_is_certain(arm.steady_s, eager.steady_s),
        )

    def ratios(self) -> dict[str, dict[str, float]]:
        """How many times as long the slow arm takes: `cold_over_warm`, `eager_over_warm`, ...

        Of medians, by boundary: `first_call` and `startup` over the others, `startup` and `steady`
        of eager over them.
        """
        return dict(self._ratios())

    def _ratios(self) -> Iterator[tuple[str, dict[str, float]]]:
        cold, eager = self.arm(COLD), self.arm(EAGER)
        for arm in self.arms:
            if cold is not None and arm.name not in (COLD, EAGER):
                yield (
                    f"{COLD}_over_{arm.name}",
                    {
                        "first_call": cold.first_call_s.median / arm.first_call_s.median,
                        "startup": cold.startup_s.median / arm.startup_s.median,
                    },
                )
            steady = arm.steady_s
            if eager is not None and arm is not eager and eager.steady_s and steady:
                yield (
                    f"{EAGER}_over_{arm.name}",
                    {
                        "startup": eager.startup_s.median / arm.startup_s.median,
                        "steady": eager.steady_s.median / steady.median,
                    },
                )

    def to_json(self) -> dict[str, Json]:
        """All but the arms, of which a bench tells more."""
        ratios: dict[str, Json] = {name: {**value} for name, value in self.ratios().items()}
        return {
            "variant": self.variant.to_json(),
            "ratios": ratios,
            "bundle": self.bundle.to_json() if self.bundle else None,
            "notes": list(self.notes),
        }

    def arm_json(self, arm: Arm) -> dict[str, Json]:
        """An arm, with its break-even call."""
        pays = None if arm.name == EAGER else self.break_even(arm)
        return {**arm.to_json(), "break_even_call": pays.to_json() if pays else None}


def _is_certain(one: Spread, other: Spread) -> bool:
    enough = min(len(one.samples), len(other.samples)) >= ENOUGH
    return enough and not one.overlaps(other)


def _crossing(arm: Arm, eager: Arm, arm_first_s: float, eager_first_s: float) -> int | None:
    compiled, plain = arm.cost(arm_first_s), eager.cost(eager_first_s)
    return None if compiled is None or plain is None else break_even(compiled, plain)


@dataclass(frozen=True, slots=True)
class Failure:
    """An arm that gave no figure: the process failed, or was not what the label says."""

    variant: str
    arm: str
    reason: str

    def __str__(self) -> str:
        return f"{self.variant}, {self.arm}: {' '.join(self.reason.split())}"

    def to_json(self) -> dict[str, Json]:
        return {"variant": self.variant, "arm": self.arm, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured: arms interleaved, each sample a fresh process.

    `items` of `unit` are what one call works on: throughput is that over the steady seconds.
    `command` makes the same again. With `interrupted` the caller ended it early, and fewer samples
    than `runs` were made.
    """

    target: str
    workload: str
    options: WorkloadOptions
    runs: int
    trials: tuple[Trial, ...]
    store: str
    environment: Components
    created: str
    context: Components = Components()
    items: int = 1
    unit: str = "calls"
    command: str = ""
    failures: tuple[Failure, ...] = field(default=())
    interrupted: bool = False

    def throughput(self, arm: Arm) -> float | None:
        """Items a second of the steady calls; None where calls differ, and in their items too."""
        steady = arm.steady_s
        return self.items / steady.median if steady and arm.are_alike else None

    def to_json(self) -> dict[str, Json]:
        """The fields of `tccache.bench/1`; `arms`, `ratios` and `bundle` are those of the first
        variant, `variants` has all by label."""
        trials = {trial.variant.label: self._trial_json(trial) for trial in self.trials}
        first = next(iter(trials.values()), {})
        return {
            "target": self.target,
            "workload": self.workload,
            "options": self.options.to_json(),
            "runs": self.runs,
            "interrupted": self.interrupted,
            "created": self.created,
            "command": self.command,
            "store": self.store,
            "environment": {
                "digest": self.environment.digest,
                "components": dict(self.environment),
            },
            "context": dict(self.context),
            "items": self.items,
            "unit": self.unit,
            "arms": first.get("arms", {}),
            "ratios": first.get("ratios", {}),
            "bundle": first.get("bundle"),
            "variants": {**trials},
            "failures": [failure.to_json() for failure in self.failures],
        }

    def _trial_json(self, trial: Trial) -> dict[str, Json]:
        arms: dict[str, Json] = {
            arm.name: {**trial.arm_json(arm), "throughput_per_s": self.throughput(arm)}
            for arm in trial.arms
        }
        return {**trial.to_json(), "arms": arms}
