"""For whom a live directory is filled: a record of what was asked of the segments that fill it.

What somebody brought who trusts a whole store may have run, and left files that no ledger knows of.
So nothing of it is used by who trusts keys: a directory is filled under one trust, its digest, for
all its life. One that lies apart from the others, as TRITON_CACHE_DIR may, has a record of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import UntrustedError
from cachesvc.local.ledger import has_ledger
from cachesvc.local.places import RECORDS, Places
from cachesvc.local.whole import disk_errors, write_whole

OTHER_TRUST = (
    "it was filled under another trust, and what has run from it may have left anything there"
)
_UNKNOWN = "nobody knows under which trust it was filled"
_NAME = "trust"
_ANYBODY = "anybody"


def filled_for(records: Path) -> str | None:
    """The trust under which a directory with these records is filled: its digest, or `anybody`
    where whoever could write to the store was trusted; None where nothing was brought."""
    try:
        text = (records / _NAME).read_text()
    except FileNotFoundError:
        return _ANYBODY if has_ledger(records) else None
    except (OSError, UnicodeError):
        return ""  # equal to no trust
    return text if text == _ANYBODY or DIGEST.fullmatch(text) else ""


def other_trust(records: Path, trust: str | None) -> str | None:
    """Why a directory with these records may not be used under this trust (its digest), or None."""
    return None if filled_for(records) in (None, trust or _ANYBODY) else OTHER_TRUST


def other_trust_apart(folder: Path, trust: str | None) -> str | None:
    """The same of a directory whose ledger, if there is one, lies elsewhere."""
    found = filled_for(folder / RECORDS)
    if found is None and trust is not None and _is_filled(folder):
        return _UNKNOWN
    return None if found in (None, trust or _ANYBODY) else OTHER_TRUST


def check_trust(places: Places, trust: str | None) -> None:
    """Raises UntrustedError if one of these directories was filled under another trust."""
    for root in _roots(places):
        if reason := other_trust(root / RECORDS, trust):
            raise UntrustedError(f"{root} cannot be filled: {reason}: name another directory")


def fill_for(places: Places, trust: str | None) -> None:
    """Says under which trust these directories are filled from now on.

    Raises what `check_trust` raises, and TccacheError if it cannot be said.
    """
    check_trust(places, trust)
    for root in _roots(places):
        records = root / RECORDS
        if filled_for(records) is None:
            with disk_errors(root):
                records.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(records / _NAME, (trust or _ANYBODY).encode())


def _roots(places: Places) -> Iterator[Path]:
    """The directory that the others lie in, and those that lie apart."""
    yield places.root
    for _, folder in places.folders:
        if not folder.is_relative_to(places.root):
            yield folder


def _is_filled(folder: Path) -> bool:
    try:
        return any(path.name != RECORDS for path in folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True
