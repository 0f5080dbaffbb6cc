"""The ledger: what it remembers, what it does not trust, and that it never stops a start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.components import Components
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.ledger import Ledger, Row, row_of

SHA = "a" * 64
ORIGIN = Origin("2026-01-01T00:00:00.000000Z", "any", Components.of({"threads": "4"}), "b" * 64)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def written(records: Path, path: str, row: Row, *units: Unit) -> dict[str, Any]:
    ledger = Ledger()
    ledger.note(path, row)
    ledger.note_origins(units)
    ledger.write_if_changed(records)
    value = json.loads((records / "ledger.json").read_bytes())
    assert isinstance(value, dict)
    return value


def unit(key: str, origin: Origin = ORIGIN) -> Unit:
    return Unit(key, (Entry(key, 1, SHA),), origin)


def test_what_was_written_is_read(tmp_path: Path, file: Path) -> None:
    """Rows and origins come back equal; an origin that many units share is written once."""
    row = row_of(file, SHA)
    other = Origin("2026-01-02T00:00:00.000000Z", "c" * 64)
    raw = written(tmp_path, "inductor/file", row, unit("a"), unit("b"), unit("c", other))
    assert len(raw["origins"]) == 2
    ledger = Ledger.read(tmp_path)
    assert ledger.rows == {"inductor/file": row}
    assert ledger.origins == {"a": ORIGIN, "b": ORIGIN, "c": other}


def test_who_made_a_unit_first_stands(tmp_path: Path) -> None:
    """A unit that was seeded once is never taken for somebody else's later."""
    ledger = Ledger()
    ledger.note_origins([unit("a")])
    ledger.note_origins([unit("a", Origin("2027-01-01T00:00:00.000000Z", "any"))])
    assert ledger.origins == {"a": ORIGIN}


def test_a_ledger_that_says_nothing_new_is_not_written(tmp_path: Path, file: Path) -> None:
    """A start that finds everything in place writes nothing."""
    written(tmp_path, "inductor/file", row_of(file, SHA), unit("a"))
    before = os.stat(tmp_path / "ledger.json")
    ledger = Ledger.read(tmp_path)
    ledger.note_origins([unit("a")])
    ledger.write_if_changed(tmp_path)
    assert os.stat(tmp_path / "ledger.json") == before


def test_groups_are_trusted_under_the_name_they_hold(tmp_path: Path, file: Path) -> None:
    """A volume mounted elsewhere: no file changed, yet the paths in the groups lead nowhere."""
    row, here = row_of(file, SHA), tmp_path / "here"
    ledger = Ledger()
    ledger.settle(here)
    for path in ("triton/K/__grp__k.json", "triton/K/k.json", "inductor/ab/c.so"):
        ledger.note(path, row)
    ledger.write_if_changed(tmp_path)
    again = Ledger.read(tmp_path)
    again.settle(here)
    assert again == Ledger.read(tmp_path)
    assert len(again.rows) == 3
    again.settle(tmp_path / "there")
    assert set(again.rows) == {"triton/K/k.json", "inductor/ab/c.so"}
    again.write_if_changed(tmp_path)
    assert Ledger.read(tmp_path).triton == str(tmp_path / "there")


def test_a_file_as_it_was_recorded_is_trusted(file: Path) -> None:
    """Same size, modification time and inode."""
    assert row_of(file, SHA).is_at(file)


def test_a_file_of_another_size_is_not_trusted(file: Path) -> None:
    """Even with its old modification time."""
    row, status = row_of(file, SHA), os.stat(file)
    with open(file, "ab") as target:
        target.write(b"!")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not row.is_at(file)


def test_a_file_of_another_time_is_not_trusted(file: Path) -> None:
    """One nanosecond is enough."""
    row, status = row_of(file, SHA), os.stat(file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert not row.is_at(file)


def test_another_file_of_that_name_is_not_trusted(file: Path) -> None:
    """A copy of the same size and time, renamed over the old one, has another inode."""
    row, status = row_of(file, SHA), os.stat(file)
    copy = file.with_name("copy")
    copy.write_bytes(file.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert row.is_at(file)
    os.replace(copy, file)
    assert not row.is_at(file)


def test_a_file_that_is_gone_is_not_trusted(file: Path) -> None:
    """Nor one whose folder became a file."""
    row = row_of(file, SHA)
    assert not row.is_at(file / "below")
    file.unlink()
    assert not row.is_at(file)


VALID: dict[str, Any] = {
    "version": 1,
    "triton": "/cache/triton",
    "rows": {"a": [SHA, 1, 2, 3]},
    "origins": [["t", "any", {}, None]],
    "units": {"a": 0},
}


def test_the_valid_one_is_read(tmp_path: Path) -> None:
    """The text that the cases of the next test are made of."""
    (tmp_path / "ledger.json").write_text(json.dumps(VALID))
    assert Ledger.read(tmp_path).rows == {"a": Row(SHA, 1, 2, 3)}


WRONG: list[dict[str, Any]] = [
    {"version": 2},
    {"rows": []},
    {"rows": {"a": None}},
    {"rows": {"a": [SHA, 1, 2]}},
    {"rows": {"a": [SHA, 1, 2, 3, 4]}},
    {"rows": {"a": [SHA, "many", 2, 3]}},
    {"rows": {"a": [SHA, None, 2, 3]}},
    {"origins": {}},
    {"origins": [None]},
    {"origins": [["t", "any", None, None]]},
    {"origins": [["t", "any", [], None]]},
    {"origins": []},
    {"units": {"a": "b"}},
    {"units": []},
]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "null", "[]", "7", "{}", "[" * 100_000),
        json.dumps(VALID)[:-1],
        json.dumps(VALID) * 2,
        *(json.dumps(VALID | wrong) for wrong in WRONG),
    ],
)
def test_an_unreadable_ledger_is_empty(tmp_path: Path, text: str) -> None:
    """Cut, doubled, of another version or shape: the files are then compared by their digest."""
    (tmp_path / "ledger.json").write_text(text)
    assert Ledger.read(tmp_path) == Ledger()


def test_no_ledger_is_an_empty_one(tmp_path: Path) -> None:
    """None yet, or something of that name that cannot be read as a file."""
    assert Ledger.read(tmp_path) == Ledger()
    (tmp_path / "ledger.json").mkdir()
    assert Ledger.read(tmp_path) == Ledger()


def test_strange_contexts_can_be_written_again(tmp_path: Path) -> None:
    """What was read from a ledger that somebody edited does not break the next writing."""
    raw = {**VALID, "origins": [["t", "any", {"threads": [1, 2]}, 7]]}
    (tmp_path / "ledger.json").write_text(json.dumps(raw))
    ledger = Ledger.read(tmp_path)
    ledger.note("b", Row(SHA, 1, 2, 3))
    ledger.write_if_changed(tmp_path)
    assert set(Ledger.read(tmp_path).rows) == {"a", "b"}


def test_the_very_file_that_was_recorded(tmp_path: Path) -> None:
    """Also when other bytes were written into it; not another one of its name, nor one that a
    compiler takes away at that moment."""
    file = tmp_path / "file"
    file.write_bytes(b"seeded")
    row = row_of(file, "0" * 64)
    file.write_bytes(b"written over")
    assert row.has_inode_of(file)
    (tmp_path / "new").write_bytes(b"built anew")
    (tmp_path / "new").rename(file)
    assert not row.has_inode_of(file)
    file.unlink()
    assert not row.has_inode_of(file)
