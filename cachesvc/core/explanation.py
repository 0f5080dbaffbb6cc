"""Why a start finds what it was looking for, or does not: every component that differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cachesvc.core.address import ANY_MODEL, Address
from cachesvc.core.changes import sentence, sentences
from cachesvc.core.components import Difference
from cachesvc.core.digest import Json

AREAS = ("environment", "model", "context", "requirements")
"""What is compared, in this order."""

_SHOWN_LINES = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked about: `name` is None for a digest alone, `model` for a name alone."""

    name: str | None
    model: str | None
    environment: str

    def __str__(self) -> str:
        model = self.model[:12] if self.model else ANY_MODEL
        return self.name or f"the model {model}"


@dataclass(frozen=True, slots=True)
class Need(Difference):
    """A requirement: `component` is its kind, `old` what units of the nearest bundle need.

    `new` is what this host has instead, or what the other bundle needs; `units` is how many units
    nothing else stands in for.
    """

    units: int = 0

    def __str__(self) -> str:
        return f"{self.component}: {_counted(self.units)} need {self.old}, this host has {self.new}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the nearest bundle differs from what was asked about; `old` is the bundle's side.

    `would_hit` is what `lookup` says: whether a start here finds something that it can use; None
    where two bundles were compared. `nearest` is None if no bundle of that name can be read.
    `unknown` are the areas that could not be compared; `notes` say why, and what else matters.
    """

    asked: Asked
    nearest: Address | None
    would_hit: bool | None
    environment: tuple[Difference, ...] = ()
    model: tuple[Difference, ...] = ()
    context: tuple[Difference, ...] = ()
    requirements: tuple[Need, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything that was compared differs."""
        return bool(self.environment or self.model or self.context or self.requirements)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The explanation for people, a line each: first the answer, then what differs."""
        return (self._answer(), *(f"  {line}" for line in self._lines()))

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def to_json(self) -> dict[str, Json]:
        """All of it as plain values; fields are only ever added."""
        return {
            "asked": _place(self.asked),
            "nearest": None if self.nearest is None else _place(self.nearest),
            "would_hit": self.would_hit,
            "differences": {
                "environment": [_json(item) for item in self.environment],
                "model": [_json(item) for item in self.model],
                "context": [_json(item) for item in self.context],
                "requirements": [{**_json(n), "units": n.units} for n in self.requirements],
            },
            "unknown": list(self.unknown),
            "notes": list(self.notes),
        }

    def _answer(self) -> str:
        if self.would_hit is None:
            named = Address(str(self.asked.name), str(self.asked.model), self.asked.environment)
            return f"{self.nearest} -> {named}: {self._summary()}"
        if self.nearest is None:
            return f"{self.asked}: a miss here, and no bundle can be read"
        if self.would_hit and not self.differs:
            return f"{self.nearest}: {self._summary()}, a start here finds it"
        if self.would_hit:
            return (
                f"{self.nearest}: a start here finds it; where these differ (bundle -> here),"
                " the compiler may not use it"
            )
        what = "these differ (bundle -> here)" if self.differs else "see below"
        return f"{self.asked}: a miss here; the nearest bundle is {self.nearest}; {what}"

    def _summary(self) -> str:
        if self.differs:
            return "these differ"
        compared = [area for area in AREAS if area not in self.unknown]
        return f"nothing differs in {', '.join(compared)}" if self.unknown else "nothing differs"

    def _lines(self) -> Iterator[str]:
        yield from (f"environment {sentence(item)}" for item in self.environment)
        model = [f"model {text}" for text in sentences(self.model)]
        yield from model[:_SHOWN_LINES]
        if len(model) > _SHOWN_LINES:
            yield f"model: {len(model) - _SHOWN_LINES} more differ, which JSON tells"
        yield from (f"context {sentence(item)}" for item in self.context)
        for need in self.requirements:
            yield f"requirement {sentence(need) if self.would_hit is None else need}"
        yield from self.notes


def _place(where: Asked | Address) -> dict[str, Json]:
    return {"name": where.name, "model": where.model, "environment": where.environment}


def _json(difference: Difference) -> dict[str, Json]:
    return {"component": difference.component, "old": difference.old, "new": difference.new}


def _counted(units: int) -> str:
    return f"{units} unit" if units == 1 else f"{units} units"
