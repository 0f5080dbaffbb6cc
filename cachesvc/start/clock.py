"""The clock and the nonce: the two values that make every push its own."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone


def now() -> str:
    """The time as manifests write it: UTC with microseconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def nonce() -> str:
    """32 random hex digits."""
    return secrets.token_hex(16)
