"""Quarantine: what failed is moved away and not brought again; the innocent come back."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import BusyError, TccacheError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local import quarantine
from cachesvc.local.damage import damaged_units
from cachesvc.local.layout import unit_key
from cachesvc.local.ledger import Ledger
from cachesvc.local.places import RECORDS, Places, under
from cachesvc.local.quarantine import is_set_aside, read_quarantine, restore, set_aside, unit_files
from cachesvc.local.receipt import read_receipt, receipt_of, write_receipt
from cachesvc.local.seed import Seeder, SeedPlan

AT = "2026-01-01T00:00:00.000000Z"
SEGMENT = "b" * 64
ORIGIN = Origin(AT, "any", segment=SEGMENT)
NATIVE = b"\x7fELF\x02\x01\x01".ljust(64, b"\0")
LIBRARY, KERNEL, GRAPH = "inductor/ab/cstem", "triton/KEY", "inductor/fxgraph/xy/fkey"
GROUP = json.dumps({"child_paths": {"k.cubin": "k.cubin", "k.json": "k.json"}}).encode()
CONTENTS = {
    "inductor/aotautograd/akey/one": b"\x80autograd.",
    f"{GRAPH}/one": b"\x80graph.",
    f"{LIBRARY}.py": b"code = 1\n",
    f"{LIBRARY}.main.so": NATIVE + b"library",
    f"{KERNEL}/__grp__k.json": GROUP,
    f"{KERNEL}/k.cubin": NATIVE + b"kernel",
    f"{KERNEL}/k.json": b"{}",
}


def at(number: int) -> str:
    """The time of a call: each has another one."""
    return AT.replace("000000Z", f"{number:06}Z")


def units_of(contents: Mapping[str, bytes]) -> list[Unit]:
    entries: dict[str, list[Entry]] = {}
    for path, data in contents.items():
        entry = Entry(path, len(data), digest_bytes(data))
        entries.setdefault(unit_key(path.split("/")), []).append(entry)
    return [Unit(key, tuple(found), ORIGIN) for key, found in entries.items()]


def unit_of(key: str, contents: Mapping[str, bytes] = CONTENTS) -> Unit:
    return next(unit for unit in units_of(contents) if unit.key == key)


def seed(places: Places, contents: Mapping[str, bytes] = CONTENTS) -> SeedPlan:
    with Seeder(places) as seeder:
        plan = seeder.plan(units_of(contents))
        for unit in plan.missing:
            for entry in unit.entries:
                seeder.stage(entry, io.BytesIO(contents[entry.path]))
        seeder.commit(plan.missing, plan.in_place)
    return plan


def keys(units: tuple[Unit, ...]) -> list[str]:
    return [unit.key for unit in units]


def files(places: Places) -> set[str]:
    paths = (path.relative_to(places.root) for path in places.root.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] != ".tccache"}


def rewrite(file: Path, data: bytes) -> None:
    """As something outside does it: other bytes, in the same file."""
    file.write_bytes(data)
    os.utime(file, ns=(1, 1))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = under(tmp_path / "live")
    seed(places)
    return places


def test_a_unit_is_moved_whole_and_named(places: Places) -> None:
    """All its files leave the live directory, nothing else does, and the record says why."""
    (made,) = set_aside(places, {LIBRARY: "file too short"}, at=AT)
    assert (made.unit, made.reason, made.at, made.segment) == (
        *(LIBRARY, "file too short", AT),
        SEGMENT,
    )
    assert files(places) == {path for path in CONTENTS if not path.startswith(LIBRARY)}
    assert read_quarantine(places.records) == (made,)
    assert str(made) == f"{LIBRARY}: file too short"


@pytest.mark.parametrize("key", [LIBRARY, KERNEL, GRAPH])
def test_the_same_bytes_are_not_brought_again(places: Places, key: str) -> None:
    """A restart does not fall into it again, and the plan says which units it leaves out."""
    set_aside(places, {key: "raises"}, at=AT)
    plan = seed(places)
    assert [item.unit for item in plan.set_aside] == [key]
    assert len(plan.in_place) == 3
    assert plan.missing == ()
    assert unit_files(places, key) == {}


@pytest.mark.parametrize("key", [LIBRARY, KERNEL])
def test_what_was_published_anew_is_welcome(places: Places, key: str) -> None:
    """One other byte under the same key makes it another unit."""
    set_aside(places, {key: "raises"}, at=AT)
    path = next(path for path in CONTENTS if path.startswith(key) and path.endswith((".so", "bin")))
    plan = seed(places, {**CONTENTS, path: NATIVE + b"built anew"})
    assert (keys(plan.missing), plan.set_aside) == ([key], ())
    assert (places.root / path).read_bytes() == NATIVE + b"built anew"


def test_a_unit_that_was_only_damaged_here_is_brought_again(places: Places) -> None:
    """The bytes that failed are not those of the bundle, so those are not held against it."""
    rewrite(places.root / f"{LIBRARY}.main.so", b"\x7fELF")
    (damage,) = damaged_units(places)
    set_aside(places, {damage.unit: damage.reason}, at=AT)
    plan = seed(places)
    assert (keys(plan.missing), plan.set_aside) == ([LIBRARY], ())
    assert (places.root / f"{LIBRARY}.main.so").read_bytes() == CONTENTS[f"{LIBRARY}.main.so"]


def test_all_bytes_that_failed_under_a_key_stay_known(places: Places) -> None:
    """Two publishers took turns with two bad libraries: neither is brought a second time."""
    other = {**CONTENTS, f"{LIBRARY}.main.so": NATIVE + b"as bad"}
    set_aside(places, {LIBRARY: "raises"}, at=AT)
    seed(places, other)
    set_aside(places, {LIBRARY: "raises too"}, at=AT)
    (known,) = read_quarantine(places.records)
    assert known.reason == "raises too"
    assert is_set_aside(unit_of(LIBRARY), (known,))
    assert is_set_aside(unit_of(LIBRARY, other), (known,))
    assert is_set_aside(unit_of(KERNEL), (known,)) is None


def test_what_it_vouched_for_is_forgotten(places: Places) -> None:
    """No row, no origin and no receipt speaks of a unit that is not there any more."""
    write_receipt(places.records, [], [], receipt_of({}, [places.root / f"{LIBRARY}.py"]))
    set_aside(places, {LIBRARY: "raises"}, at=AT)
    ledger = Ledger.read(places.records)
    assert LIBRARY not in ledger.origins
    assert set(ledger.rows) == {path for path in CONTENTS if not path.startswith(LIBRARY)}
    assert read_receipt(places.records, [], []) is None


def test_what_this_machine_made_can_be_set_aside(places: Places) -> None:
    """Without a ledger row and without a segment; what is compiled afterwards is kept."""
    made_here = places.root / "inductor/cd/cmine.so"
    made_here.parent.mkdir()
    made_here.write_bytes(b"\x7fELF half")
    (made,) = set_aside(places, {"inductor/cd/cmine": "is cut short"}, at=AT)
    assert made.segment is None
    assert not made_here.exists()


def test_what_is_not_there_is_not_set_aside(places: Places) -> None:
    """Nothing is recorded for it, so that nothing is held against it later."""
    assert set_aside(places, {"inductor/zz/cnone": "raises", "aot/f": "raises"}, at=AT) == ()
    assert read_quarantine(places.records) == ()


def test_what_was_set_aside_before_stays_so(places: Places) -> None:
    """Nothing of it lies there any more, so a second call changes nothing: it can come back."""
    made = set_aside(places, {LIBRARY: "raises"}, at=AT)
    assert set_aside(places, {LIBRARY: "raises again"}, at=at(1)) == ()
    assert read_quarantine(places.records) == made
    assert restore(places, [LIBRARY]) == (LIBRARY,)


def test_units_that_were_not_at_fault_come_back(places: Places) -> None:
    """The files are the very same ones, the record is gone, and seeding finds all in place."""
    before = {path: os.stat(places.root / path).st_ino for path in CONTENTS}
    set_aside(places, {unit.key: "raises" for unit in units_of(CONTENTS)}, at=AT)
    assert files(places) == set()
    assert set(restore(places, [LIBRARY, KERNEL])) == {LIBRARY, KERNEL}
    assert {item.unit for item in read_quarantine(places.records)} == {
        *(GRAPH, "inductor/aotautograd/akey")
    }
    restore(places, [GRAPH, "inductor/aotautograd/akey"])
    assert {path: os.stat(places.root / path).st_ino for path in CONTENTS} == before
    plan = seed(places)
    assert (len(plan.in_place), plan.missing, plan.set_aside) == (4, (), ())


def test_whose_a_unit_is_comes_back_with_it(places: Places) -> None:
    """Who made it, who had signed it, and its files: the ledger is as it was, so that the next push
    takes it for nobody's own."""
    ledger = Ledger.read(places.records)
    ledger.note_signers({LIBRARY: frozenset({"one", "two"}), KERNEL: frozenset()})
    ledger.write_if_changed(places.records)
    before = Ledger.read(places.records)
    (made, _) = set_aside(places, {LIBRARY: "raises", KERNEL: "raises"}, at=AT)
    assert read_quarantine(places.records)[0] == made
    restore(places, [LIBRARY, KERNEL])
    after = Ledger.read(places.records)
    assert (after.rows, after.origins) == (before.rows, before.origins)
    assert after.signers == before.signers


def test_whose_a_unit_is_is_known_before_it_is_there(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at the first file that comes back, or at the last: it is known by then."""
    set_aside(places, {KERNEL: "raises"}, at=AT)
    known = []

    def note(source: Path, target: Path) -> None:
        if KERNEL in str(target):
            known.append(Ledger.read(places.records).origins.get(KERNEL))
        rename(source, target)

    rename = os.rename
    monkeypatch.setattr(os, "rename", note)
    restore(places, [KERNEL])
    assert known == [ORIGIN] * 3


def test_a_record_that_kept_the_segment_alone(places: Places) -> None:
    """As earlier versions wrote it: the unit is known to come from there, and by nobody signed;
    what this machine had made itself is its own."""
    os.remove(places.records / "ledger.json")
    set_aside(places, {LIBRARY: "raises", KERNEL: "raises"}, at=AT)
    file = places.records / "quarantine.json"
    raw = json.loads(file.read_text())
    for item in raw["units"]:
        assert item.pop("seeded") is None
    raw["units"][0]["segment"] = SEGMENT
    file.write_text(json.dumps(raw))
    assert len(restore(places, [LIBRARY, KERNEL])) == 2
    ledger = Ledger.read(places.records)
    assert ledger.origins == {LIBRARY: ORIGIN}
    assert ledger.signers == {LIBRARY: frozenset()}


def test_what_was_compiled_meanwhile_stays(places: Places) -> None:
    """No half of the old unit is put beside the new one."""
    set_aside(places, {LIBRARY: "raises"}, at=AT)
    (places.root / f"{LIBRARY}.main.so").write_bytes(NATIVE)
    assert restore(places, [LIBRARY]) == ()
    assert set(unit_files(places, LIBRARY)) == {f"{LIBRARY}.main.so"}
    assert read_quarantine(places.records) == ()


def test_hits_leave_first_and_come_back_last(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader that looks meanwhile finds a group without its kernel."""
    moved: list[str] = []
    rename = os.rename

    def note(source: Path, target: Path) -> None:
        moved.append(Path(source).name)
        rename(source, target)

    monkeypatch.setattr(os, "rename", note)
    set_aside(places, {KERNEL: "raises"}, at=AT)
    restore(places, [KERNEL])
    assert moved[0] == moved[-1] == "__grp__k.json"


def test_a_process_killed_in_between_has_lost_nothing(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved and not recorded: the unit is brought once more, and can be set aside again."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(quarantine, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            set_aside(places, {LIBRARY: "raises"}, at=AT)
    assert keys(seed(places).missing) == [LIBRARY]
    assert len(set_aside(places, {LIBRARY: "raises"}, at=AT)) == 1


def test_another_file_system_is_copied_to(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's directory may lie on another disk than the records."""
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if (RECORDS in Path(source).parts) != (RECORDS in Path(target).parts):
            raise OSError(18, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    set_aside(places, {KERNEL: "raises"}, at=AT)
    assert unit_files(places, KERNEL) == {}
    restore(places, [KERNEL])
    assert (places.root / f"{KERNEL}/k.cubin").read_bytes() == CONTENTS[f"{KERNEL}/k.cubin"]


def test_the_quarantine_is_bounded(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the oldest go, what is known of them stays for long, and not for ever."""
    monkeypatch.setattr(quarantine, "_MOST_KEPT_UNITS", 1)
    monkeypatch.setattr(quarantine, "_MOST_CALLS", 3)
    for number, unit in enumerate(units_of(CONTENTS)):
        set_aside(places, {unit.key: "raises"}, at=at(number))
    known = [item.unit for item in read_quarantine(places.records)]
    assert known == [unit.key for unit in units_of(CONTENTS)[1:]]
    assert len(list((places.records / "quarantine").iterdir())) == 2
    monkeypatch.setattr(quarantine, "_MOST_KEPT_BYTES", 1)
    restore(places, [])
    assert len(list((places.records / "quarantine").iterdir())) == 1
    assert restore(places, known) == tuple(known[-1:])
    assert len(seed(places).missing) == 3


MANY = {
    f"inductor/{number % 256:02x}/c{number:04}.py": f"code = {number}\n".encode()
    for number in range(300)
}


def test_a_big_bundle_is_remembered_whole(tmp_path: Path) -> None:
    """Nothing of it is brought again, also after many calls more: else it would never start."""
    places = under(tmp_path / "live")
    seed(places, {**MANY, **CONTENTS})
    made = set_aside(places, dict.fromkeys((u.key for u in units_of(MANY)), "died"), at=at(0))
    assert len(made) == len(MANY)
    assert read_quarantine(places.records) == made
    for number, key in enumerate((LIBRARY, KERNEL, GRAPH), 1):
        set_aside(places, {key: "raises"}, at=at(number))
    plan = seed(places, MANY)
    assert (len(plan.set_aside), plan.missing) == (len(MANY), ())


def test_a_big_bundle_comes_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the newest call moved is kept, however much it is; what older ones moved is not."""
    monkeypatch.setattr(quarantine, "_MOST_KEPT_BYTES", 1)
    places = under(tmp_path / "live")
    seed(places, {**MANY, **CONTENTS})
    set_aside(places, {LIBRARY: "raises"}, at=at(0))
    keys_of_many = [unit.key for unit in units_of(MANY)]
    set_aside(places, dict.fromkeys(keys_of_many, "died"), at=at(1))
    assert len(list((places.records / "quarantine").iterdir())) == len(MANY)
    assert set(restore(places, [LIBRARY, *keys_of_many])) == set(keys_of_many)
    plan = seed(places, MANY)
    assert (len(plan.in_place), plan.missing, plan.set_aside) == (len(MANY), (), ())


def test_what_was_moved_before_an_error_is_known(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails in the midst of the second unit: both are recorded and can be put back, the
    third lies where it lay, and the error is told."""
    before = files(places)
    rename, group = os.rename, f"{KERNEL}/__grp__k.json"

    def fail(source: Path, target: Path) -> None:
        if source == places.root / f"{KERNEL}/k.json":
            raise OSError(5, "Input/output error", str(source))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(TccacheError, match=r"k\.json: Input/output error"):
            set_aside(places, dict.fromkeys((LIBRARY, KERNEL, GRAPH), "raises"), at=AT)
    assert [item.unit for item in read_quarantine(places.records)] == [LIBRARY, KERNEL]
    assert group not in files(places)
    assert unit_files(places, GRAPH)
    assert [item.unit for item in seed(places).set_aside] == [LIBRARY, KERNEL]
    restore(places, [LIBRARY, KERNEL])
    assert files(places) == before


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version": 1}', '{"version": 2, "units": []}', '{"version": 1, "units": [7]}'],
)
def test_a_record_that_cannot_be_read_is_empty(places: Places, text: str) -> None:
    """A damaged record never stops a start."""
    set_aside(places, {LIBRARY: "raises"}, at=AT)
    (places.records / "quarantine.json").write_text(text)
    assert read_quarantine(places.records) == ()
    assert keys(seed(places).missing) == [LIBRARY]


def test_a_record_leads_nowhere_else(places: Places) -> None:
    """A unit key that points out of the live directory is no record."""
    set_aside(places, {LIBRARY: "raises"}, at=AT)
    file = places.records / "quarantine.json"
    file.write_text(file.read_text().replace(LIBRARY, "inductor/../../../etc"))
    assert read_quarantine(places.records) == ()


def test_who_seeds_is_waited_for(places: Places) -> None:
    """Units do not vanish between another process's plan and its commit."""
    with Seeder(places), pytest.raises(BusyError):
        set_aside(places, {LIBRARY: "raises"}, at=AT, patience_s=0.01)


# Seeding heals what it finds.

DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "a library cut short": (f"{LIBRARY}.main.so", lambda data: data[:10]),
    "an empty library": (f"{LIBRARY}.main.so", lambda _: b""),
    "a wrapper with other bytes": (f"{LIBRARY}.py", lambda _: b"code = 2\n"),
    "a kernel cut short": (f"{KERNEL}/k.cubin", lambda data: data[:10]),
    "half a group": (f"{KERNEL}/__grp__k.json", lambda data: data[: len(data) // 2]),
    "an empty graph": (f"{GRAPH}/one", lambda _: b""),
    "a graph with a flipped bit": (f"{GRAPH}/one", lambda data: data.replace(b"g", b"h")),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_seen_and_seeded_again(places: Places, name: str) -> None:
    """Named by its unit, then replaced by the good bytes; the files that are right stay."""
    path, damage = DAMAGES[name]
    before = {p: os.stat(places.root / p).st_ino for p in CONTENTS if p != path}
    rewrite(places.root / path, damage((places.root / path).read_bytes()))
    (found,) = damaged_units(places)
    assert found.unit == unit_key(path.split("/"))
    assert path in found.reason
    plan = seed(places)
    assert keys(plan.missing) == keys(plan.damaged) == [found.unit]
    assert damaged_units(places) == ()
    assert before == {p: os.stat(places.root / p).st_ino for p in before}
    assert len(seed(places).in_place) == 4


def test_broken_files_that_nobody_seeded_are_seen_and_replaced(tmp_path: Path) -> None:
    """A compiler was killed here before the first pull: its half library is no reason to keep it,
    nor is the rest of what it made for that unit."""
    places = under(tmp_path / "live")
    own = {f"{LIBRARY}.main.so": b"\x7fELF", f"{LIBRARY}.py": b"code = 'mine'\n"}
    for path, data in own.items():
        (places.root / path).parent.mkdir(parents=True, exist_ok=True)
        (places.root / path).write_bytes(data)
    assert [damage.unit for damage in damaged_units(places)] == [LIBRARY]
    assert keys(seed(places).damaged) == [LIBRARY]
    assert {path: (places.root / path).read_bytes() for path in own} == {
        path: CONTENTS[path] for path in own
    }


def test_a_running_process_keeps_the_file_it_has_open(places: Places) -> None:
    """Replaced by rename: what is mapped elsewhere is another file, and never changes."""
    library = places.root / f"{LIBRARY}.main.so"
    rewrite(library, b"half")
    with open(library, "rb") as mapped:
        seed(places)
        assert mapped.read() == b"half"


def test_what_a_compiler_has_written_again_is_no_damage(places: Places) -> None:
    """Triton writes a kernel again after a miss, and a missing library is built again."""
    rewrite(places.root / f"{LIBRARY}.main.so", NATIVE + b"built here")
    rewrite(places.root / f"{KERNEL}/k.cubin", NATIVE + b"built here")
    assert damaged_units(places) == ()
    assert set(keys(seed(places).kept)) == {LIBRARY, KERNEL}


def test_a_unit_of_which_a_file_is_gone_is_named(places: Places) -> None:
    """A graph's entries stand for themselves, and a unit that is gone altogether is just a miss."""
    (places.root / f"{KERNEL}/k.cubin").unlink()
    (places.root / f"{GRAPH}/one").unlink()
    (damage,) = damaged_units(places)
    assert damage.problems == (f"{KERNEL}/k.cubin is gone",)


def test_bytes_are_read_even_where_time_and_size_are_as_recorded(places: Places) -> None:
    """Damage on the disk itself changes neither."""
    graph = places.root / f"{GRAPH}/one"
    status = os.stat(graph)
    with open(graph, "r+b") as file:
        file.write(b"\x80G")
    os.utime(graph, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [damage.unit for damage in damaged_units(places)] == [GRAPH]


def test_locks_and_temporaries_are_not_judged(places: Places) -> None:
    """What a compiler is writing at this moment is under a name of its own."""
    for name in ("inductor/locks/c.lock", "inductor/ab/.1.2.tmp", "triton/KEY/tmp.pid_1_x/k.json"):
        (places.root / name).parent.mkdir(parents=True, exist_ok=True)
        (places.root / name).write_bytes(b"")
    assert damaged_units(places) == ()


def test_more_files_than_one_are_counted(places: Places) -> None:
    """The reason is one sentence."""
    for name in ("k.cubin", "k.json"):
        rewrite(places.root / KERNEL / name, b"")
    (damage,) = damaged_units(places)
    assert damage.reason == f"{KERNEL}/k.cubin is empty and 1 more files"


def test_only_all_bytes_of_a_unit_cover_it() -> None:
    """A record without digests forbids nothing."""
    record = quarantine.SetAside(LIBRARY, "raises", AT, ())
    assert is_set_aside(unit_of(LIBRARY), (record,)) is None
    known = tuple(entry.sha256 for entry in unit_of(LIBRARY).entries)
    assert is_set_aside(unit_of(LIBRARY), (replace(record, sha256s=known),))
    assert is_set_aside(unit_of(LIBRARY), (replace(record, sha256s=known[:1]),)) is None
