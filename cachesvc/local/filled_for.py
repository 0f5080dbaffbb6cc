"""For whom a live directory is filled: a record of what was asked of the segments that fill it.

What somebody brought who trusts a whole store may have run, and left files that no ledger knows of.
So nothing of it is used by who trusts keys: a directory is filled under one trust, its digest, for
all its life.
"""

from __future__ import annotations

from pathlib import Path

from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import UntrustedError
from cachesvc.local.ledger import has_ledger
from cachesvc.local.whole import disk_errors, write_whole

_NAME = "trust"
OTHER_TRUST = (
    "it was filled under another trust, and what has run from it may have left anything there"
)


def filled_for(records: Path) -> str | None:
    """The digest of the trust under which a directory with these records is filled; None where
    whoever could write to the store was trusted, or nothing was brought."""
    try:
        text = (records / _NAME).read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError):
        return ""  # equal to no digest
    return text if DIGEST.fullmatch(text) else ""


def other_trust(records: Path, trust: str | None) -> str | None:
    """Why a directory may not be used under this trust, or None."""
    found = filled_for(records)
    if found == trust or (found is None and not has_ledger(records)):
        return None
    return OTHER_TRUST


def fill_for(root: Path, records: Path, trust: str | None) -> None:
    """Says under which trust a directory is filled from now on; to be called under its lock.

    Raises UntrustedError if it was filled under another one.
    """
    if reason := other_trust(records, trust):
        raise UntrustedError(f"{root} cannot be filled: {reason}: name another directory")
    if trust is not None and filled_for(records) is None:
        with disk_errors(root):
            write_whole(records / _NAME, trust.encode())
