"""What keeps a model from being compiled once and cached: each kind with its consequence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cachesvc.core.digest import Json

CONSEQUENCES = {
    "graph break": "the model is split here: each part is a graph of its own, cached by itself, and"
    " the code between them runs in Python",
    "recompile": "the same code was compiled again for other inputs: give such a call when the"
    " bundle is made, or mark the dimension as dynamic",
    "bypass Inductor": "no cache keeps such a graph: each start compiles it",
    "bypass AOTAutograd": "such a graph is traced at each start; its compiled code is still reused",
}


@dataclass(frozen=True, slots=True, order=True)
class Incident:
    """One thing that happened `count` times: its kind, the compiler's reason, and the place.

    `kind` is a key of CONSEQUENCES. `place` is `file:line in function`, empty where the compiler
    does not say it; the file is the last part of its path.
    """

    kind: str
    reason: str
    place: str = ""
    count: int = 1

    @property
    def consequence(self) -> str:
        return CONSEQUENCES.get(self.kind, "")

    def __str__(self) -> str:
        times = f"{self.count} times " if self.count > 1 else ""
        place = f" at {self.place}" if self.place else ""
        return f"{self.kind} {times}{place}".replace("  ", " ").strip() + f": {self.reason}"

    def to_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "reason": self.reason,
            "place": self.place,
            "count": self.count,
            "consequence": self.consequence,
        }


def sentences(incidents: Iterable[Incident], most: int = 3) -> list[str]:
    """A line for each incident, the first `most` of each kind, then what that kind means."""
    by_kind: dict[str, list[Incident]] = {}
    for incident in incidents:
        by_kind.setdefault(incident.kind, []).append(incident)
    lines: list[str] = []
    for kind, group in by_kind.items():
        lines += [str(incident) for incident in group[:most]]
        if len(group) > most:
            lines.append(f"{kind}: {len(group) - most} more")
        if group[0].consequence:
            lines.append(f"  {group[0].consequence}")
    return lines
