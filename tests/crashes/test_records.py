"""Records that cannot be read now are not taken for none, and replaced by less."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import TccacheError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.damage import damaged_units
from cachesvc.local.ledger import Ledger
from cachesvc.local.places import Places, under
from cachesvc.local.quarantine import read_quarantine, restore, set_aside
from cachesvc.local.seed import Seeder

AT = "2026-01-01T00:00:00.000000Z"
KEYS = ("inductor/ab/cone", "inductor/ab/ctwo")
UNITS = [
    Unit(key, (Entry(f"{key}.py", 4, digest_bytes(b"code")),), Origin(AT, "any", segment="b" * 64))
    for key in KEYS
]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A live directory with two units that were seeded, one of them set aside since."""
    places = under(tmp_path / "live")
    with Seeder(places) as seeder:
        for unit in UNITS:
            seeder.stage(unit.entries[0], io.BytesIO(b"code"))
        seeder.commit(UNITS)
    set_aside(places, {KEYS[0]: "failed"}, at=AT)
    return places


@pytest.mark.parametrize("name", ["ledger.json", "quarantine.json"])
@pytest.mark.parametrize(
    "code", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE]
)
def test_what_another_try_may_read_is_kept(
    places: Places, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    """Who writes stops with one sentence before anything is changed; who only looks goes on."""
    read_bytes = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.name == name:
            raise OSError(code, os.strerror(code), str(path))
        return read_bytes(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(TccacheError, match=f"cannot read .*{name}: {os.strerror(code)}: "):
            set_aside(places, {KEYS[1]: "failed"}, at=AT)
        if name == "quarantine.json":
            with pytest.raises(TccacheError, match="cannot read"):
                restore(places, KEYS)
            assert read_quarantine(places.records) == ()
        else:
            with pytest.raises(TccacheError, match="cannot read"):
                Seeder(places).__enter__()
        assert damaged_units(places) == ()
    assert [item.unit for item in read_quarantine(places.records)] == [KEYS[0]]
    assert Ledger.read(places.records).origins.keys() == {KEYS[1]}
    assert restore(places, KEYS) == (KEYS[0],)


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOENT, errno.EISDIR])
def test_what_can_never_be_read_is_none(
    places: Places, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Records of a user who lets nobody read them: the files are compared, and it goes on."""

    def fail(path: Path) -> bytes:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(Path, "read_bytes", fail)
    assert Ledger.read(places.records) == Ledger()
    with Seeder(places):
        pass
