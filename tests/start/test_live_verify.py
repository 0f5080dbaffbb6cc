"""Whatever happens to a file of a live directory is found, and after a repair and a start all is as
it was seeded."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

import cachesvc
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import BusyError, TccacheError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local import lock, receipt
from cachesvc.local.in_use import holding
from cachesvc.local.layout import unit_key
from cachesvc.local.ledger import Ledger, row_of
from cachesvc.local.live import INDUCTOR, live_directory
from cachesvc.local.places import Places
from cachesvc.local.seed import Seeder
from cachesvc.start import live_verify
from cachesvc.start.live_verify import LiveVerification, verify_live

from .conftest import Published, Starts

ENVIRONMENT = "e" * 64
OTHER = 12345
LONG_AGO = 1_000_000_000
GROUP = json.dumps({"child_paths": {"k.cubin": "k.cubin", "k.json": "k.json"}}).encode()
# The header of a library that has no tables: whole, as far as can be seen.
NATIVE = b"\x7fELF\x02\x01\x01".ljust(64, b"\0") + b"machine code"
PICKLE = b"\x80\x05]."
CONTENTS = {
    "inductor/aotautograd/akey/one": PICKLE,
    "inductor/fxgraph/xy/fkey/one": PICKLE,
    "inductor/fxgraph/xy/fkey/two": PICKLE,
    "inductor/ab/cstem.py": b"code = 1\n",
    "inductor/ab/cstem.so": NATIVE,
    "inductor/cd/cother.best_config": b'{"best": 1}',
    "triton/KEY/__grp__k.json": GROUP,
    "triton/KEY/k.cubin": NATIVE,
    "triton/KEY/k.json": b"{}",
}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def _homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This environment's live directory is this test's own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in (INDUCTOR, "TRITON_CACHE_DIR", "TCCACHE_SHARED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "tccache"))
    monkeypatch.setattr(live_verify, "own_environment", lambda: ENVIRONMENT)


@pytest.fixture
def places() -> Places:
    """A live directory into which a bundle was seeded."""
    places = live_directory(ENVIRONMENT, os.environ).places
    seed(places)
    return places


def units() -> list[Unit]:
    entries: dict[str, list[Entry]] = {}
    for path, data in CONTENTS.items():
        entry = Entry(path, len(data), digest_bytes(data))
        entries.setdefault(unit_key(path.split("/")), []).append(entry)
    origin = Origin("2026-01-01T00:00:00.000000Z", "any", segment="b" * 64)
    return [Unit(key, tuple(found), origin) for key, found in entries.items()]


def seed(places: Places) -> int:
    """What a start does with a bundle; how many units it had to bring."""
    with Seeder(places) as seeder:
        plan = seeder.plan(units())
        for unit in plan.missing:
            for entry in unit.entries:
                seeder.stage(entry, io.BytesIO(CONTENTS[entry.path]))
        seeder.commit(plan.missing, plan.in_place)
    return len(plan.missing)


def file_of(places: Places, path: str) -> Path:
    file = places.locate(path)
    assert file is not None
    return file


def contents(places: Places) -> dict[str, bytes]:
    """The cache's files, with bare names in groups."""
    found = {}
    for path in CONTENTS:
        data = file_of(places, path).read_bytes()
        found[path] = data.replace(f"{places.root}/triton/KEY/".encode(), b"")
    return found


def age(folder: Path, seconds: float) -> None:
    """Makes what lies there older than it is."""
    for file in folder.iterdir():
        before = file.stat().st_mtime - seconds
        os.utime(file, (before, before))


def problem(found: LiveVerification) -> str:
    (item,) = found.problems
    return str(item)


def test_a_directory_in_order(places: Places) -> None:
    """Nothing is found, nothing is changed, and all was read."""
    before = {path: os.stat(file_of(places, path)).st_ino for path in CONTENTS}
    found = verify_live(repair=True)
    assert found.ok
    assert (found.path, found.units, found.files) == (str(places.root), 5, len(CONTENTS))
    assert found.bytes == sum(file_of(places, path).stat().st_size for path in CONTENTS)
    assert (found.problems, found.moved, found.leftovers) == ((), (), ())
    assert {path: os.stat(file_of(places, path)).st_ino for path in CONTENTS} == before


def test_an_empty_directory_is_in_order() -> None:
    """A machine on which nothing was compiled yet."""
    assert verify_live().ok


DAMAGES = [
    pytest.param(20, False),
    pytest.param(20, True),
    pytest.param(250, False, marks=pytest.mark.slow),
    pytest.param(250, True, marks=pytest.mark.slow),
]


def _flip(file: Path, chance: random.Random) -> bool:
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return True


def _cut(file: Path, chance: random.Random) -> bool:
    os.truncate(file, chance.randrange(file.stat().st_size))
    return True


def _zeros(file: Path, chance: random.Random) -> bool:
    """As a disk leaves a file that was not flushed: another file of the same length."""
    size = file.stat().st_size
    file.unlink()
    file.write_bytes(bytes(size))
    return True


def _swap(file: Path, chance: random.Random) -> bool:
    other = file.parent / chance.choice(sorted(os.listdir(file.parent)))
    data = file.read_bytes(), other.read_bytes()
    file.write_bytes(data[1])
    other.write_bytes(data[0])
    return data[0] != data[1]


def _remove(file: Path, chance: random.Random) -> bool:
    """Some files of a unit; a unit that is gone whole is none."""
    if len(os.listdir(file.parent)) == 1 or "fxgraph" in file.parts:
        return False
    file.unlink()
    return True


@pytest.mark.parametrize(("number", "quietly"), DAMAGES)
def test_damages_are_found_and_repaired(places: Places, number: int, quietly: bool) -> None:
    """Flips, cuts, zeros, swaps and removals, 500 in all, half of them with the times kept: each is
    found; each repair leaves a directory that is in order, and the next start ends with the bytes
    of the bundle. What is whole, and of a kind and date that a compiler may have written, is told
    as changed, and stays."""
    chance = random.Random(11)
    damages: list[Callable[[Path, random.Random], bool]] = [_flip, _cut, _zeros, _swap, _remove]
    found = 0
    while found < number:
        damage, path = chance.choice(damages), chance.choice(sorted(CONTENTS))
        file = file_of(places, path)
        status = os.stat(file)
        if not damage(file, chance):
            continue
        if quietly and file.exists():
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        said = verify_live()
        done = verify_live(repair=True)
        assert (said.problems, said.moved) == (done.problems, done.moved)
        assert said.ok is not bool(said.problems or said.moved)
        assert done.ok, (damage, path, done)
        assert said.problems or said.moved or said.changed, (damage, path)
        for changed in said.changed:
            assert changed.endswith((".json", ".best_config")), changed
            assert not quietly or damage is _swap, changed
        _remove_units(places, said.changed)
        seed(places)
        assert contents(places) == CONTENTS, (damage, path)
        assert verify_live() == verify_live(repair=True)
        found += 1


def _remove_units(places: Places, changed: tuple[str, ...]) -> None:
    """By hand, as whoever was told of it may."""
    for path in changed:
        shutil.rmtree(file_of(places, path).parent, ignore_errors=True)


def test_a_repair_removes_the_unit_whole_and_forgets_it(places: Places) -> None:
    """Its other files go too, its rows, and the receipts that speak of it; the others stay."""
    key = {"a": 1}
    receipt.write_receipt(places.records, "scope", key, receipt.receipt_of({}, []))
    file_of(places, "inductor/ab/cstem.py").write_bytes(b"other")
    said = verify_live()
    assert problem(said) == (
        "inductor/ab/cstem: inductor/ab/cstem.py was changed after it was seeded"
    )
    assert (said.ok, said.removed) == (False, ())
    found = verify_live(repair=True)
    assert (found.ok, found.removed) == (True, ("inductor/ab/cstem",))
    assert not file_of(places, "inductor/ab/cstem.so").exists()
    ledger = Ledger.read(places.records)
    assert "inductor/ab/cstem" not in ledger.origins
    assert len(ledger.rows) == len(CONTENTS) - 2
    assert receipt.read_receipt(places.records, "scope", key) is None
    assert seed(places) == 1


def test_what_a_compiler_has_written_again_is_no_damage(places: Places) -> None:
    """A library and a kernel of other bytes in the place of those that were seeded, and a better
    result of tuning in the same file."""
    for path in ("inductor/ab/cstem.so", "triton/KEY/k.cubin"):
        new = file_of(places, path).with_name("new")
        new.write_bytes(NATIVE + b"of another build")
        new.rename(file_of(places, path))
    file_of(places, "inductor/cd/cother.best_config").write_text('{"best": 2}')
    found = verify_live(repair=True)
    assert (found.ok, found.removed) == (True, ())
    assert found.changed == (
        "inductor/ab/cstem.so",
        "inductor/cd/cother.best_config",
        "triton/KEY/k.cubin",
    )


@pytest.mark.parametrize("path", ["inductor/ab/cstem.so", "triton/KEY/k.cubin", "aot/group/key"])
def test_what_no_compiler_has_written(places: Places, path: str) -> None:
    """A library that was written over where it lay, whole as far as can be seen, and a function's
    code in any way: the next start would run it."""
    file = file_of(places, path)
    if path.startswith("aot/"):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"code")
        ledger = Ledger.read(places.records)
        ledger.note(path, row_of(file, digest_bytes(b"code")))
        ledger.write_if_changed(places.records)
        file.unlink()
    file.write_bytes(NATIVE + b"zeroed")
    assert "was changed after it was seeded" in problem(verify_live())
    assert verify_live(repair=True).ok
    assert not file.exists()


@pytest.mark.parametrize(
    ("path", "data", "what"),
    [
        ("inductor/ab/own.py", b"def (", "is no Python"),
        ("inductor/ab/own.so", b"\x7fELF", "is not a native library"),
        ("inductor/fxgraph/xy/own/one", b"\x80\x05", "is cut short"),
        ("triton/OWN/__grp__own.json", b"[]", "is no Triton group"),
        ("triton/OWN/__grp__own.json", b"{", "is no JSON"),
    ],
)
def test_what_no_compiler_can_read(places: Places, path: str, data: bytes, what: str) -> None:
    """Files of this machine's own making: nobody knows their digest, and they are seen to be
    broken."""
    file_of(places, path).parent.mkdir(parents=True, exist_ok=True)
    file_of(places, path).write_bytes(data)
    assert what in problem(verify_live())
    assert verify_live(repair=True).ok
    assert not file_of(places, path).exists()


def test_a_group_that_lists_what_is_not_there(places: Places) -> None:
    """A kernel that this machine has compiled, of which a file is gone: Triton builds it anew at
    each start, and leaves the group as it is."""
    folder = file_of(places, "triton/OWN")
    folder.mkdir()
    paths = {name: str(folder / name) for name in ("own.cubin", "own.json")}
    (folder / "__grp__own.json").write_text(json.dumps({"child_paths": paths}))
    (folder / "own.json").write_text("{}")
    assert problem(verify_live()) == (
        "triton/OWN: triton/OWN/__grp__own.json lists own.cubin, which is not there"
    )
    found = verify_live(repair=True)
    assert found.removed == ("triton/OWN",)
    assert not folder.exists()


def test_a_kernel_without_its_group(places: Places) -> None:
    """A writer was killed before the group: Triton does not find it. A launcher has none."""
    folder = file_of(places, "triton/OWN")
    folder.mkdir()
    (folder / "launcher.so").write_bytes(NATIVE)
    assert verify_live().ok
    (folder / "own.cubin").write_bytes(NATIVE)
    age(folder, 3600)
    assert "is in no group" in problem(verify_live())
    assert verify_live(repair=True).removed == ("triton/OWN",)


@pytest.mark.parametrize("key", ["OWN", "KEY"])
@pytest.mark.parametrize("is_held", [True, False])
def test_a_compile_that_is_under_way_stays(places: Places, key: str, is_held: bool) -> None:
    """A kernel's first files come long before its group, also where one is compiled again: a repair
    leaves them for ten minutes; for a day while a process holds the directory."""
    folder = file_of(places, f"triton/{key}")
    folder.mkdir(exist_ok=True)
    (folder / "__grp__k.json").unlink(missing_ok=True)
    (folder / "k.ttir").write_text("first stage")
    found = verify_live(repair=True)
    assert (found.ok, found.removed, found.problems) == (True, (), ())
    with holding(places) if is_held else nullcontext():
        age(folder, 3600)
        assert verify_live(repair=True).removed == (() if is_held else (f"triton/{key}",))
        assert (folder / "k.ttir").exists() is is_held
        if is_held:
            age(folder, 2 * 86_400)
            assert verify_live(repair=True).removed == (f"triton/{key}",)


def test_a_directory_that_was_moved(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its groups lead to where it was; a repair makes them lead to where it is: nothing is lost."""
    shutil.move(str(tmp_path / "tccache"), str(tmp_path / "moved"))
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "moved"))
    found = verify_live()
    assert (found.ok, found.problems, found.moved) == (False, (), ("triton/KEY/__grp__k.json",))
    found = verify_live(repair=True)
    assert (found.ok, found.put_right, found.removed) == (True, found.moved, ())
    moved = live_directory(ENVIRONMENT, os.environ).places
    group = json.loads(file_of(moved, "triton/KEY/__grp__k.json").read_bytes())
    assert all(os.path.isfile(path) for path in group["child_paths"].values())
    assert all(str(moved.root) in path for path in group["child_paths"].values())
    assert seed(moved) == 0


@as_root
@pytest.mark.parametrize("what", ["file", "link", "folder", "link in a unit"])
def test_what_another_user_has_left(
    places: Places, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put there while the directory was open, and would be run; unless that is meant."""
    planted = file_of(places, "inductor/ab/planted.so")
    if what == "file":
        planted.write_bytes(NATIVE)
    elif "link" in what:
        planted = planted if what == "link" else file_of(places, "triton/KEY") / "planted.so"
        planted.symlink_to("/elsewhere")
    else:
        planted = planted.parent.parent / "zz"
        planted.mkdir()
    os.chown(planted, OTHER, OTHER, follow_symlinks=False)
    monkeypatch.setenv("TCCACHE_SHARED", "1")
    assert verify_live().ok
    monkeypatch.delenv("TCCACHE_SHARED")
    assert f"{planted}: it belongs to another user (UID {OTHER})" in problem(verify_live())
    assert verify_live(repair=True).ok
    assert not os.path.lexists(planted)
    assert verify_live().problems == ()
    assert seed(places) == (what == "link in a unit")
    assert contents(places) == CONTENTS


@pytest.mark.xdist_group("start")
def test_what_compilers_write_is_in_order(starts: Starts, fused: Published) -> None:
    """Of a real cold start, all that lies in its live directory is as it should be."""
    found = starts.run(
        "found = cachesvc.verify_live()\n"
        "result = [found.ok, found.units, found.moved, list(map(str, found.problems))]",
        home=fused.home,
    )
    ok, units, moved, problems = found
    assert (ok, moved, problems) == (True, [], [])
    assert units > 3


def test_what_is_being_written_is_no_damage(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel whose group comes a moment later: it is looked at twice."""
    folder = file_of(places, "triton/OWN")
    folder.mkdir()
    (folder / "own.cubin").write_bytes(NATIVE)
    from cachesvc.local import soundness

    look = soundness._look

    def slowly(places: Places, *, is_shared: bool) -> soundness.Soundness:
        found = look(places, is_shared=is_shared)
        paths = {"own.cubin": str(folder / "own.cubin")}
        (folder / "__grp__own.json").write_text(json.dumps({"child_paths": paths}))
        return found

    monkeypatch.setattr(soundness, "_look", slowly)
    assert verify_live().ok


def test_leftovers_are_no_problem_and_are_removed(places: Places) -> None:
    """Files of a killed process: told, and gone after a repair."""
    left = file_of(places, "triton/KEY") / "tmp.pid_1_2"
    left.mkdir()
    os.utime(left, (LONG_AGO, LONG_AGO))
    found = verify_live()
    assert (found.ok, found.leftovers) == (True, (str(left),))
    assert verify_live(repair=True).failed == ()
    assert not left.exists()


def test_a_repair_waits_for_seeders_and_reading_for_nobody(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who seeds holds the lock: what it writes is not removed from under it."""
    monkeypatch.setattr(live_verify, "PATIENCE_S", 0)
    file_of(places, "inductor/ab/cstem.py").write_bytes(b"other")
    with Seeder(places):
        assert not verify_live().ok
        with pytest.raises(BusyError):
            verify_live(repair=True)
    assert not lock.is_held(places)
    assert verify_live(repair=True).ok


def test_what_cannot_be_removed_is_told(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not in order then, and says so."""
    file_of(places, "inductor/ab/cstem.py").write_bytes(b"other")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        found = verify_live(repair=True)
    assert not found.ok
    assert found.removed == ()
    assert "cstem.py cannot be removed: Permission denied" in " ".join(found.failed)


def test_without_torch_there_is_nothing_to_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says so."""
    monkeypatch.setattr(live_verify, "own_environment", lambda: None)
    with pytest.raises(TccacheError, match="no torch is installed here"):
        cachesvc.verify_live()
