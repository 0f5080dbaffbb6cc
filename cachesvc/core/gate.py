"""The gate: is this bench worse than an earlier one, in ratios of its arms?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cachesvc.core.digest import Json
from cachesvc.core.errors import UsageError

MARGIN = 0.25
"""How much worse a ratio may be than before, unless the caller says: seconds vary, ratios less."""

SCHEMA = "tccache.bench/1"

Ratios = Mapping[tuple[str, str, str], float]
"""By variant, arms and boundary: how many times as long the slow arm takes. More is better."""


@dataclass(frozen=True, slots=True)
class Change:
    """One ratio before and now; `now` is None if it was not measured this time."""

    variant: str
    arms: str
    boundary: str
    before: float
    now: float | None

    def regressed(self, margin: float) -> bool:
        """Whether it is worse than before by more than the margin, or missing."""
        return self.now is None or self.now < self.before * (1 - margin)

    def __str__(self) -> str:
        now = "not measured" if self.now is None else f"{self.now:.2f}"
        name = f"{self.variant}: {self.arms.replace('_', ' ')}, {self.boundary.replace('_', ' ')}"
        return f"{name}: {self.before:.2f} -> {now}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All ratios of an earlier bench, beside those of this one.

    `notes` say what makes the two hard to compare: another environment, other options.
    """

    margin: float
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def regressions(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.regressed(self.margin))

    def to_json(self) -> dict[str, Json]:
        return {
            "margin": self.margin,
            "ok": not self.regressions,
            "notes": list(self.notes),
            "changes": [
                {
                    "variant": change.variant,
                    "arms": change.arms,
                    "boundary": change.boundary,
                    "before": change.before,
                    "now": change.now,
                    "regressed": change.regressed(self.margin),
                }
                for change in self.changes
            ],
        }


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a gate needs of an earlier bench."""

    place: str
    target: str
    options: Mapping[str, object]
    environment: str
    ratios: Ratios
    partial: bool = False

    @classmethod
    def read(cls, value: object, place: str) -> Baseline:
        """The baseline in a JSON object of `tccache.bench/1`. UsageError names the place."""
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise UsageError(f"{place} is no bench: give what `tccache bench --json` printed")
        ratios = dict(_ratios(_object(value, "variants")))
        if not ratios:
            raise UsageError(f"{place} holds no ratios of arms: bench with a cold and a warm arm")
        return cls(
            place=place,
            target=str(value.get("target")),
            options=_object(value, "options"),
            environment=str(_object(value, "environment").get("digest")),
            ratios=ratios,
            partial=bool(value.get("interrupted") or value.get("failures")),
        )

    def check_target(self, target: str) -> None:
        """Raises UsageError for another target: its ratios say nothing of this one."""
        if self.target != target:
            raise UsageError(f"{self.place} is a bench of {self.target}, not of {target}")


def compare_with(baseline: Baseline, now: Mapping[str, object], margin: float) -> Comparison:
    """The comparison of a bench, as its JSON object, with an earlier one."""
    ratios = dict(_ratios(_object(now, "variants")))
    changes = (
        Change(*key, before, ratios.get(key)) for key, before in sorted(baseline.ratios.items())
    )
    compared = Comparison(margin, tuple(changes))
    notes = (*_notes(baseline, now), *_faster(compared))
    return replace(compared, notes=notes)


def _faster(compared: Comparison) -> Iterator[str]:
    """Warm starts win less where cold ones got faster: says so."""
    against_eager = {
        change.variant: change
        for change in compared.changes
        if (change.arms, change.boundary) == ("eager_over_cold", "startup")
    }
    for variant in dict.fromkeys(change.variant for change in compared.regressions):
        change = against_eager.get(variant)
        if change and change.now and change.now > change.before * (1 + compared.margin):
            yield f"{variant}: cold starts got faster, so that the others win less: {change}"


def _notes(baseline: Baseline, now: Mapping[str, object]) -> Iterator[str]:
    if _object(now, "environment").get("digest") != baseline.environment:
        yield "the baseline was made in another environment: ratios may differ for that alone"
    if _object(now, "options") != baseline.options:
        yield "the baseline was made with other sizes, shapes or training"
    if baseline.partial:
        yield "the baseline is not whole: it was interrupted, or arms of it failed"


def _ratios(variants: Mapping[str, object]) -> Iterator[tuple[tuple[str, str, str], float]]:
    for label in variants:
        ratios = _object(_object(variants, label), "ratios")
        for arms in ratios:
            for boundary, ratio in _object(ratios, arms).items():
                if isinstance(ratio, int | float) and ratio > 0:
                    yield (label, arms, boundary), float(ratio)


def _object(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
