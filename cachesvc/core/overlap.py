"""What a prefetch did while the program was busy otherwise, and what a start still waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from cachesvc.core.digest import Json


class Prefetch(Protocol):
    """What a prefetch has begun beside the program."""

    label: str

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the bundles, at most `timeout` seconds; whether that has ended.

        Not for the compiler's imports, which may wait for this thread to import torch.
        """

    def state(self) -> str:
        """`under way`, or what was done and what went wrong with the bundles, in a sentence."""


@dataclass(frozen=True, slots=True)
class Span:
    """Work of one stage between two moments, in seconds of one clock."""

    stage: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a prefetch: its seconds; how many of them had passed when the start was called,
    `hidden_s`; and how many the start waited, `waited_s`.

    Seconds in which the start was busy itself, or had gone on without it, are in neither of them.
    """

    name: str
    seconds: float
    hidden_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """The ledger of a prefetch: its stages, and the packs and bytes that it brought.

    The stages are `pull` (the look into the store, fetching, verifying and unpacking), `seed` and
    `compiler imports`. `trouble` says what went wrong, or is empty.
    """

    stages: tuple[Stage, ...] = ()
    packs: int = 0
    bytes: int = 0
    trouble: str = ""

    @property
    def hidden_s(self) -> float:
        """The seconds of all stages that had passed when the start was called."""
        return sum(stage.hidden_s for stage in self.stages)

    @property
    def waited_s(self) -> float:
        """The seconds that the start waited, stage by stage; two may have run at once."""
        return sum(stage.waited_s for stage in self.stages)

    def to_json(self) -> dict[str, Json]:
        return {
            "stages": {stage.name: _stage_json(stage) for stage in self.stages},
            "packs": self.packs,
            "bytes": self.bytes,
            "hidden_s": self.hidden_s,
            "waited_s": self.waited_s,
            "trouble": self.trouble,
        }

    def __str__(self) -> str:
        told = [
            f"{stage.name} {stage.seconds:.2f} s ({stage.hidden_s:.2f} hidden,"
            f" {stage.waited_s:.2f} waited)"
            for stage in self.stages
        ]
        return f"prefetched: {'; '.join([*told, *filter(None, [self.trouble])]) or 'nothing yet'}"


def stages(
    spans: Iterable[Span], *, called: float, waits: Iterable[tuple[float, float]]
) -> tuple[Stage, ...]:
    """The stages of these spans, in the order of their beginning.

    `called` is the moment at which the start was called, `waits` are the times in which it did
    nothing but wait.
    """
    times = tuple(waits)
    found: dict[str, Stage] = {}
    for span in spans:
        so_far = found.get(span.stage, Stage(span.stage, 0.0, 0.0, 0.0))
        found[span.stage] = Stage(
            span.stage,
            so_far.seconds + span.ended - span.begun,
            so_far.hidden_s + max(0.0, min(span.ended, called) - span.begun),
            so_far.waited_s + sum(_shared(span, *wait) for wait in times),
        )
    return tuple(found.values())


def _shared(span: Span, begun: float, ended: float) -> float:
    """The seconds of a span between two moments."""
    return max(0.0, min(span.ended, ended) - max(span.begun, begun))


def _stage_json(stage: Stage) -> dict[str, Json]:
    return {"seconds": stage.seconds, "hidden_s": stage.hidden_s, "waited_s": stage.waited_s}
