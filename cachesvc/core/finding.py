"""What keeps a machine or a model from compiling once and starting warm, and what cures it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cachesvc.core.digest import Json

Severity = Literal["disease", "hint"]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, `count` times, and the change that cures it.

    A disease costs compiles, or keeps caches from working; a hint is worth knowing and may be as it
    should be. `what` says what was found and what follows from it, `where` is a `file:line`, a
    directory or a variable, empty where there is no one place.
    """

    kind: str
    severity: Severity
    what: str
    where: str = ""
    cure: str = ""
    count: int = 1

    def __str__(self) -> str:
        times = f" {self.count} times" if self.count > 1 else ""
        place = f" at {self.where}" if self.where else ""
        return f"{self.kind}{times}{place}: {self.what}"

    def to_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "severity": self.severity,
            "what": self.what,
            "where": self.where,
            "cure": self.cure,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found about a machine and, with a target, about its model.

    `target` is None for the machine alone. `facts` are what was looked at, as plain JSON values;
    `told` is the gist of them for people.
    """

    target: str | None
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)
    told: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether no disease was found; there may be hints."""
        return not self.of("disease")

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of one severity, in the order of the search."""
        return tuple(item for item in self.findings if item.severity == severity)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The diagnosis for people, a line each: the gist, then diseases, then hints.

        Of each kind the first few are told.
        """
        return (self._gist(), *self._lines())

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def to_json(self) -> dict[str, Json]:
        """All of it as plain values; fields are only ever added."""
        return {
            "target": self.target,
            "healthy": self.healthy,
            "findings": [item.to_json() for item in self.findings],
            "facts": dict(self.facts),
        }

    def _gist(self) -> str:
        subject = self.target or "this machine"
        if self.healthy:
            return f"healthy: {subject}{''.join(f', {text}' for text in self.told)}"
        counts = Counter(item.severity for item in self.findings)
        return f"{subject}: {', '.join(_counted(n, name) for name, n in sorted(counts.items()))}"

    def _lines(self) -> Iterator[str]:
        by_kind: dict[tuple[str, str], list[Finding]] = {}
        for item in (*self.of("disease"), *self.of("hint")):
            by_kind.setdefault((item.severity, item.kind), []).append(item)
        for (severity, kind), group in by_kind.items():
            for item in group[:_SHOWN]:
                yield f"  {severity}, {item}"
                if item.cure:
                    yield f"    cure: {item.cure}"
            if len(group) > _SHOWN:
                yield f"  {severity}, {kind}: {len(group) - _SHOWN} more, which JSON tells"
        if not self.healthy:
            yield from (f"  {text}" for text in self.told)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
