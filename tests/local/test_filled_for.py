"""A live directory is filled under one trust for all its life."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachesvc.core.errors import UntrustedError
from cachesvc.local.filled_for import (
    OTHER_TRUST,
    fill_for,
    filled_for,
    other_trust,
    other_trust_apart,
)
from cachesvc.local.ledger import Ledger, Row
from cachesvc.local.live import live_directory
from cachesvc.local.places import RECORDS, Places, under

ONE, TWO = "1" * 64, "2" * 64
ENVIRONMENT = "e" * 64


def seeded(records: Path) -> None:
    """What is left of a seeding by somebody who asked for nothing."""
    ledger = Ledger()
    ledger.note("inductor/ab/c.py", Row("0" * 64, 1, 1, 1))
    ledger.write_if_changed(records)


def test_a_fresh_directory_is_for_anybody(tmp_path: Path) -> None:
    """And then for whoever was first; saying it again is harmless."""
    records = tmp_path / RECORDS
    assert filled_for(records) is None
    assert other_trust(records, None) is other_trust(records, ONE) is None
    fill_for(under(tmp_path), ONE)
    fill_for(under(tmp_path), ONE)
    assert filled_for(records) == ONE
    assert other_trust(records, ONE) is None
    for other in (None, TWO):
        assert other_trust(records, other) == OTHER_TRUST
        with pytest.raises(UntrustedError, match="name another directory"):
            fill_for(under(tmp_path), other)
    assert filled_for(records) == ONE


def test_what_was_filled_by_anybody(tmp_path: Path) -> None:
    """It says nothing, but that something was seeded; so it was before anybody trusted keys."""
    records = tmp_path / RECORDS
    seeded(records)
    fill_for(under(tmp_path), None)
    with pytest.raises(UntrustedError):
        fill_for(under(tmp_path), ONE)


def test_a_fresh_directory_for_anybody(tmp_path: Path) -> None:
    """It is said from the start, as nothing may come of it for long."""
    fill_for(under(tmp_path), None)
    assert other_trust(tmp_path / RECORDS, None) is None
    assert other_trust(tmp_path / RECORDS, ONE) == OTHER_TRUST


@pytest.mark.parametrize("first", [None, ONE])
def test_a_directory_apart_has_a_record_of_its_own(tmp_path: Path, first: str | None) -> None:
    """As Triton's, which several live directories may share."""
    apart = tmp_path / "triton"
    places = Places(tmp_path / "root", (("triton", apart),))
    fill_for(places, first)
    for trust in (None, ONE, TWO):
        assert (other_trust_apart(apart, trust) is None) == (trust == first)
    other = Places(tmp_path / "elsewhere", (("triton", apart),))
    with pytest.raises(UntrustedError, match=str(apart)):
        fill_for(other, TWO)


def test_a_directory_apart_of_which_nothing_is_known(tmp_path: Path) -> None:
    """What lies in it may have come from anybody: only those use it who do not mind."""
    assert other_trust_apart(tmp_path / "triton", ONE) is None
    (tmp_path / "triton" / "KEY").mkdir(parents=True)
    assert other_trust_apart(tmp_path / "triton", None) is None
    assert other_trust_apart(tmp_path / "triton", ONE) is not None


def test_a_triton_directory_that_a_variable_names(tmp_path: Path) -> None:
    """It is passed over alone where it was filled for others."""
    apart = tmp_path / "triton"
    fill_for(Places(tmp_path / "root", (("triton", apart),)), None)
    environ = {"TCCACHE_HOME": str(tmp_path / "home"), "TRITON_CACHE_DIR": str(apart)}
    assert live_directory(ENVIRONMENT, environ, None).folder("triton") == apart
    live = live_directory(ENVIRONMENT, environ, ONE)
    assert live.folder("triton") == live.root / "triton"
    assert any("TRITON_CACHE_DIR" in note and "another trust" in note for note in live.notes)


@pytest.mark.parametrize("text", ["", "store", ONE[:-1], f"{ONE}\n", f"{ONE}{ONE}"])
def test_a_record_that_says_nothing_known(tmp_path: Path, text: str) -> None:
    """The directory is nobody's: whatever happened to it, it is not taken for empty."""
    records = tmp_path / RECORDS
    records.mkdir()
    (records / "trust").write_text(text)
    assert all(other_trust(records, trust) for trust in (None, ONE, TWO, "3" * 64))


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    """The same for what is no file."""
    records = tmp_path / RECORDS
    (records / "trust").mkdir(parents=True)
    assert other_trust(records, None)
    assert other_trust(records, ONE)


def test_our_own_directories_are_apart(tmp_path: Path) -> None:
    """By environment and trust."""
    environ = {"TCCACHE_HOME": str(tmp_path)}
    roots = [live_directory(ENVIRONMENT, environ, trust).root for trust in (None, ONE, TWO)]
    assert [root.name for root in roots] == [
        *("e" * 16, f"{'e' * 16}-{'1' * 16}", f"{'e' * 16}-{'2' * 16}")
    ]


def test_our_own_directory_that_somebody_filled_otherwise(tmp_path: Path) -> None:
    """As by a program that was given it by a variable; it is passed over and told."""
    environ = {"TCCACHE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path / "me")}
    live = live_directory(ENVIRONMENT, environ, ONE)
    seeded(live.places.records)
    other = live_directory(ENVIRONMENT, environ, ONE)
    assert other.root.is_relative_to(tmp_path / "me")
    assert any("another trust" in note for note in other.notes)


@pytest.mark.parametrize("kind", ["set by the user", "inherited"])
def test_a_directory_that_a_variable_names(tmp_path: Path, kind: str) -> None:
    """It is used by those for whom it was filled, and passed over by others."""
    folder = tmp_path / "live" / "inductor"
    records = (folder if kind == "set by the user" else folder.parent) / RECORDS
    folder.mkdir(parents=True)
    records.mkdir(mode=0o700)
    fill_for(Places(records.parent, ()), ONE)
    environ = {"TCCACHE_HOME": str(tmp_path / "home"), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    assert live_directory(ENVIRONMENT, environ, ONE).folder("inductor") == folder
    for other in (None, TWO):
        live = live_directory(ENVIRONMENT, environ, other)
        assert live.root.is_relative_to(tmp_path / "home")
        assert any(str(folder) in note and "another trust" in note for note in live.notes)
