"""Tiers: how much of the compiler a warm start skips, and which of them a caller allows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cachesvc.core.errors import UsageError

MEGACACHE, DIRECTORIES, AOT = "megacache", "directories", "aot"
TIERS = (MEGACACHE, DIRECTORIES, AOT)
"""The better ones last."""

AUTO = "auto"
_NOT = "no-"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The tiers that a start may take; `said` is how the caller has put it."""

    tiers: tuple[str, ...] = TIERS
    said: str = AUTO

    def best(self, held: Collection[str]) -> str | None:
        """The best of these that a bundle holds, or None."""
        return next((tier for tier in reversed(TIERS) if tier in self.tiers and tier in held), None)

    def __contains__(self, tier: object) -> bool:
        return tier in self.tiers


ANY = Allowed()


def allowed(text: str) -> Allowed:
    """What `auto`, one tier or several with commas, or `no-TIER` allows. Raises UsageError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    named = [word for word in words if not word.startswith(_NOT) and word != AUTO]
    denied = [word.removeprefix(_NOT) for word in words if word.startswith(_NOT)]
    unknown = [word for word in (*named, *denied) if word not in TIERS]
    tiers = tuple(t for t in TIERS if (not named or t in named) and t not in denied)
    if unknown or not words or not tiers:
        raise UsageError(
            f"the tier is {text!r}: say auto, one of {', '.join(TIERS)}, several with commas, or"
            " no-TIER for all but one"
        )
    return Allowed(tiers, text)
