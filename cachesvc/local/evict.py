"""Eviction: what was once seeded and is not trusted any more leaves the live directory.

Only files that still lie there as they were seeded are removed. A process that has one open or
mapped keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from cachesvc.core.manifest import Origin
from cachesvc.local.layout import seed_order, unit_key
from cachesvc.local.ledger import Ledger
from cachesvc.local.lock import PATIENCE_S, lock_of, take_in_turn
from cachesvc.local.places import Places
from cachesvc.local.receipt import forget_receipts
from cachesvc.local.whole import disk_errors

IsTrusted = Callable[[Origin, frozenset[str]], bool]


def evict(places: Places, is_trusted: IsTrusted, *, patience_s: float = PATIENCE_S) -> int:
    """Removes the seeded units that are not trusted; how many there were.

    `is_trusted` is asked about who made a unit, and the keys that had signed it. Takes the live
    directory's lock where there is something to remove. Raises BusyError if another process keeps
    it and does not get on, and TccacheError if something cannot be removed: then it still counts as
    seeded.
    """
    if not _foreign(Ledger.read(places.records), is_trusted):
        return 0
    lock = lock_of(places)
    take_in_turn(lock, places, patience_s)
    try:
        ledger = Ledger.read(places.records)
        gone = _foreign(ledger, is_trusted)
        with disk_errors(places.root):
            for file in _files(ledger, gone, places):
                with suppress(FileNotFoundError):
                    file.unlink()
            ledger.forget(gone)
            ledger.write_if_changed(places.records)
        forget_receipts(places.records)
    finally:
        lock.release()
    return len(gone)


def _foreign(ledger: Ledger, is_trusted: IsTrusted) -> frozenset[str]:
    signers = ledger.signers
    return frozenset(
        unit
        for unit, origin in ledger.origins.items()
        if not is_trusted(origin, signers.get(unit, frozenset()))
    )


def _files(ledger: Ledger, units: frozenset[str], places: Places) -> Iterator[Path]:
    """The seeded files of these units; what makes a hit goes first, so that none is met half."""
    for path in sorted(ledger.rows, key=seed_order, reverse=True):
        if unit_key(path.split("/")) in units:
            file = places.locate(path)
            if file is not None and ledger.rows[path].is_at(file):
                yield file
