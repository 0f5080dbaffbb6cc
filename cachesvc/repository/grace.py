"""How long what nobody seems to need may still be somebody's.

A reader may be fetching a pack that was superseded a moment ago, and a pusher has written a pack
whose manifest is still to come. So nothing is deleted before a grace time has passed by the store's
clock, and a pusher that takes more than half of the least one gives up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

MIN_GRACE_S = 3600.0
"""The least grace time, in seconds, that a janitor may be told."""

GRACE_S = 86_400.0
"""The grace time of a janitor that is told nothing."""

PUSH_S = MIN_GRACE_S / 2
"""How many seconds a pusher has from the first byte of a pack to its manifest."""


@dataclass(frozen=True, slots=True)
class Grace:
    """The time by the store's clock, and for how many seconds what was written is left alone."""

    now: datetime
    seconds: float = GRACE_S

    def age_s(self, written: datetime) -> float:
        """How long ago something was written."""
        return (self.now - written).total_seconds()

    def is_over(self, written: datetime) -> bool:
        """Whether what was written then may be deleted."""
        return self.age_s(written) >= self.seconds
