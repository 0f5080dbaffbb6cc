"""What one unit needs of a host beyond the address, and whether a host has it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from cachesvc.core.fields import Extra

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One need of a unit.

    kind `isa`: `value` is one CPU feature as /proc/cpuinfo names it (`avx2`).
    kind `glibc`, `glibcxx`, `cxxabi`: `value` is the lowest version that serves.
    kind `driver`: `value` is the lowest CUDA version that the GPU driver must support.
    An unknown kind is never met: a newer writer may know a need that this reader does not.
    """

    VERSIONED: ClassVar[frozenset[str]] = frozenset({"glibc", "glibcxx", "cxxabi", "driver"})
    kind: str
    value: str
    extra: Extra = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that a host does not meet; `have` is what the host offers instead."""

    requirement: Requirement
    have: str

    def __str__(self) -> str:
        return f"needs {self.requirement}, this host has {self.have}"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a host offers: CPU features, and a version for each versioned kind.

    A versioned kind that is absent from `versions` could not be read on this host, or there is
    nothing to read (no GPU driver); a unit that needs it does not fit. `unchecked` stands for a
    host that is not asked: another machine's bundle is only moved through this one.
    """

    isa: frozenset[str] = frozenset()
    versions: dict[str, str] = field(default_factory=dict)
    unchecked: bool = False

    def unmet(self, requirements: Iterable[Requirement]) -> tuple[Unmet, ...]:
        """The requirements that this host does not meet, in order."""
        return tuple(
            Unmet(requirement, self._offer(requirement))
            for requirement in sorted(requirements)
            if not self.unchecked and not self._meets(requirement)
        )

    def _meets(self, requirement: Requirement) -> bool:
        if requirement.kind == "isa":
            return requirement.value in self.isa
        have = self.versions.get(requirement.kind)
        known = requirement.kind in Requirement.VERSIONED
        return known and have is not None and _at_least(have, requirement.value)

    def _offer(self, requirement: Requirement) -> str:
        if requirement.kind == "isa":
            return "a CPU without it"
        return self.versions.get(requirement.kind, f"no {requirement.kind}")


def _at_least(have: str, want: str) -> bool:
    """Whether both are dotted versions and `have` is not the lower one."""
    if not (_VERSION.fullmatch(have) and _VERSION.fullmatch(want)):
        return False
    return _numbers(have) >= _numbers(want)


def _numbers(version: str) -> list[int]:
    """The parts of a version; 12 and 12.0 are the same."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
