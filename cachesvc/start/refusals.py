"""What is said where there is nothing but segments that are refused."""

from __future__ import annotations

from collections.abc import Sequence

from cachesvc.core.errors import IntegrityError, TccacheError, UntrustedError
from cachesvc.repository.repository import Refused


def unusable(refused: Sequence[Refused]) -> TccacheError:
    """The error for it: UntrustedError where nothing is wrong but whose they are, or how old."""
    reasons = tuple(item.reason for item in refused)
    told = "; ".join(reasons)
    if all(item.untrusted for item in refused):
        return UntrustedError(f"nothing trusted was found: {told}")
    return IntegrityError(f"nothing usable was found: {told}", reasons)
