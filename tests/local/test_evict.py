"""Eviction: what was seeded and is not trusted any more goes, whole, and nothing else does."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import AccessDenied, BusyError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.evict import evict
from cachesvc.local.ledger import Ledger
from cachesvc.local.lock import lock_of
from cachesvc.local.places import Places, under
from cachesvc.local.receipt import read_receipt, receipt_of, write_receipt
from cachesvc.local.seed import Seeder

GOOD, BAD = "inductor/fxgraph/go/good", "inductor/fxgraph/ba/bad"
KEY = "a" * 64


def unit(key: str) -> Unit:
    data = key.encode()
    origin = Origin("2026-01-01T00:00:00.000000Z", "any", segment="b" * 64)
    return Unit(key, (Entry(f"{key}/entry", len(data), digest_bytes(data)),), origin)


def seed(places: Places, key: str, *signers: str) -> Path:
    """Seeds a unit, signed by these; where its file lies."""
    with Seeder(places) as seeder:
        plan = seeder.plan([unit(key)])
        for entry in unit(key).entries if plan.missing else ():
            seeder.stage(entry, io.BytesIO(key.encode()))
        seeder.commit(plan.missing, plan.in_place, {key: frozenset(signers)})
    found = places.locate(f"{key}/entry")
    assert found is not None
    return found


def is_signed(_: Origin, signers: frozenset[str]) -> bool:
    return KEY in signers


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return under(tmp_path / "live")


def test_what_is_not_trusted_goes(places: Places) -> None:
    """With its row, origin and receipts; what is trusted, or was made here, stays."""
    good, bad = seed(places, GOOD, KEY), seed(places, BAD, "c" * 64)
    own = bad.with_name("own")
    own.write_text("made here")
    write_receipt(places.records, "scope", "key", receipt_of({}, [good]))
    assert evict(places, is_signed) == 1
    assert good.read_text() == GOOD
    assert not bad.exists()
    assert own.read_text() == "made here"
    ledger = Ledger.read(places.records)
    assert set(ledger.origins) == set(ledger.signers) == {GOOD}
    assert read_receipt(places.records, "scope", "key") is None
    assert evict(places, is_signed) == 0


def test_what_came_unsigned_before_anything_was_signed(places: Places) -> None:
    """A ledger that says nothing of keys says that nothing is signed."""
    bad = seed(places, BAD)
    ledger = Ledger.read(places.records)
    ledger.signers.clear()
    ledger.note(f"{BAD}/entry", ledger.rows[f"{BAD}/entry"])
    ledger.write_if_changed(places.records)
    assert evict(places, is_signed) == 1
    assert not bad.exists()


def test_who_made_it_may_decide(places: Places) -> None:
    """As for a segment that is revoked."""
    bad = seed(places, BAD, KEY)
    assert evict(places, lambda origin, _: origin.segment != "b" * 64) == 1
    assert not bad.exists()


def test_a_file_that_this_machine_has_written_since_stays(places: Places) -> None:
    """It is not what was brought; and it does not count as brought any more."""
    file = seed(places, BAD)
    file.unlink()
    file.write_text("made here")
    assert evict(places, is_signed) == 1
    assert file.read_text() == "made here"
    assert evict(places, is_signed) == 0


def test_signed_meanwhile(places: Places) -> None:
    """What lies in place and comes again from a trusted segment is trusted from then on."""
    file = seed(places, BAD)
    assert seed(places, BAD, KEY) == file
    assert evict(places, is_signed) == 0
    assert file.exists()


def test_somebody_seeds_meanwhile(places: Places) -> None:
    """The lock is waited for, and given back."""
    file = seed(places, BAD)
    lock = lock_of(places)
    with lock, pytest.raises(BusyError):
        evict(places, is_signed, patience_s=0.01)
    assert file.exists()
    assert evict(places, is_signed, patience_s=0.01) == 1


def test_a_file_that_cannot_be_removed(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """It still counts as brought, so the next start tries again, and nobody goes on as if."""
    seed(places, BAD)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "not permitted", str(path))

    with monkeypatch.context() as context:
        context.setattr(Path, "unlink", refuse)
        with pytest.raises(AccessDenied, match="not permitted"):
            evict(places, is_signed)
    assert BAD in Ledger.read(places.records).origins
    assert evict(places, is_signed) == 1
