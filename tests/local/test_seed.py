"""Seeding: whole files in the right order, nothing overwritten, nothing read twice."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError, TccacheError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.layout import seed_order, unit_key
from cachesvc.local.ledger import Ledger
from cachesvc.local.places import Places, under
from cachesvc.local.seed import Seeder, SeedPlan
from cachesvc.local.tree import scan

ORIGIN = Origin("2026-01-01T00:00:00.000000Z", "any", segment="b" * 64)
GROUP = json.dumps({"child_paths": {"k.cubin": "k.cubin", "k.json": "k.json"}}).encode()
# The header of a library that has no tables: whole, as far as can be seen.
NATIVE = b"\x7fELF\x02\x01\x01".ljust(64, b"\0")
CONTENTS = {
    "inductor/aotautograd/akey/one": b"autograd",
    "inductor/fxgraph/xy/fkey/one": b"graph",
    "inductor/ab/cstem.py": b"code",
    "inductor/ab/cstem.so": b"library",
    "triton/KEY/__grp__k.json": GROUP,
    "triton/KEY/k.cubin": b"binary",
    "triton/KEY/k.json": b"{}",
}


def units_of(contents: Mapping[str, bytes]) -> list[Unit]:
    entries: dict[str, list[Entry]] = {}
    for path, data in contents.items():
        key = unit_key(path.split("/"))
        entries.setdefault(key, []).append(Entry(path, len(data), digest_bytes(data)))
    return [Unit(key, tuple(found), ORIGIN) for key, found in entries.items()]


def seed(places: Places, contents: Mapping[str, bytes] = CONTENTS) -> SeedPlan:
    """What a pull does: plan, stage what is missing, commit."""
    with Seeder(places) as seeder:
        plan = seeder.plan(units_of(contents))
        stage(seeder, plan.missing, contents)
        seeder.commit(plan.missing, plan.in_place)
    return plan


def stage(seeder: Seeder, units: Iterable[Unit], contents: Mapping[str, bytes] = CONTENTS) -> None:
    for unit in units:
        for entry in unit.entries:
            seeder.stage(entry, io.BytesIO(contents[entry.path]))


def files(root: Path) -> set[str]:
    """All that lies there but for this library's own records."""
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] != ".tccache"}


def child_paths(group: Path) -> dict[str, str]:
    value = json.loads(group.read_bytes())["child_paths"]
    assert isinstance(value, dict)
    return value


def identity(file: Path) -> tuple[int, int, int]:
    status = os.stat(file)
    return status.st_ino, status.st_mtime_ns, status.st_size


def sizes(plan: SeedPlan) -> tuple[int, int, int]:
    return len(plan.in_place), len(plan.missing), len(plan.kept)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return under(tmp_path / "live")


def test_everything_is_seeded(places: Places) -> None:
    """Every entry's bytes lie at its place; no staging folder is left."""
    assert sizes(seed(places)) == (0, 4, 0)
    assert files(places.root) == set(CONTENTS)
    for path, data in CONTENTS.items():
        if data is not GROUP:
            assert (places.root / path).read_bytes() == data


def test_groups_have_the_paths_of_their_final_folder(places: Places) -> None:
    """Not those of the staging folder that they were written in."""
    seed(places)
    folder = places.root / "triton" / "KEY"
    listed = child_paths(folder / "__grp__k.json")
    assert listed == {name: str(folder / name) for name in ("k.cubin", "k.json")}
    assert all(Path(path).is_file() for path in listed.values())


def test_what_was_seeded_can_be_pushed_again(places: Places) -> None:
    """Read back, the tree gives the very same entries: pushing a pulled cache adds nothing."""
    seed(places)
    found = scan((name, folder) for name, folder in places.folders if folder.is_dir())
    packed = {
        file.path: file.content or file.source.read_bytes()
        for unit in found.units
        for file in unit.files
    }
    assert packed == CONTENTS


def test_a_hit_is_seen_after_what_it_leads_to(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files first, then groups, FX entries, AOTAutograd entries: no reader finds half a kernel."""
    linked: list[str] = []
    link = os.link

    def note(source: Path, target: Path) -> None:
        linked.append(str(target.relative_to(places.root)))
        link(source, target)

    monkeypatch.setattr(os, "link", note)
    seed(places)
    assert sorted(linked) == sorted(CONTENTS)
    assert linked == sorted(linked, key=seed_order)
    assert linked[-3:] == [
        "triton/KEY/__grp__k.json",
        "inductor/fxgraph/xy/fkey/one",
        "inductor/aotautograd/akey/one",
    ]


def test_a_second_start_reads_nothing(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's sizes, times and inodes are enough to know that everything is in place."""
    seed(places)
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        assert path.name in ("ledger.json", "quarantine.json"), f"{path} was read"
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert sizes(seed(places)) == (4, 0, 0)


def test_without_a_ledger_files_are_compared(places: Places) -> None:
    """What lies there with the right bytes is in place, and is known from then on."""
    seed(places)
    ledger = places.records / "ledger.json"
    rows = Ledger.read(places.records).rows
    ledger.write_text("damaged")
    assert sizes(seed(places)) == (4, 0, 0)
    assert Ledger.read(places.records).rows == rows


@pytest.mark.parametrize("path", ["inductor/ab/cstem.so", "triton/KEY/k.cubin"])
def test_a_file_of_this_machine_is_kept(places: Places, path: str) -> None:
    """Other bytes under the name of an entry: neither they nor the rest of their unit change."""
    file = places.root / path
    file.parent.mkdir(parents=True)
    file.write_bytes(NATIVE)
    before = identity(file)
    plan = seed(places)
    assert [unit.key for unit in plan.kept] == [unit_key(path.split("/"))]
    assert file.read_bytes() == NATIVE
    assert identity(file) == before
    assert [name for name in files(places.root) if name.startswith(plan.kept[0].key)] == [path]


def test_a_library_that_was_built_again_is_kept(places: Places) -> None:
    """Seeded once, then built by a compiler that missed it: whole, and this machine's own."""
    seed(places)
    library = places.root / "inductor/ab/cstem.so"
    library.write_bytes(NATIVE)
    assert sizes(seed(places)) == (3, 0, 1)
    assert library.read_bytes() == NATIVE


def test_a_file_that_appears_meanwhile_is_left(places: Places) -> None:
    """A compiler was quicker between plan and commit: its file stays, the others come beside."""
    with Seeder(places) as seeder:
        plan = seeder.plan(units_of(CONTENTS))
        stage(seeder, plan.missing)
        file = places.root / "inductor/ab/cstem.so"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"quicker")
        seeder.commit(plan.missing)
    assert file.read_bytes() == b"quicker"
    assert files(places.root) == set(CONTENTS)
    assert "inductor/ab/cstem.so" not in Ledger.read(places.records).rows


def test_half_a_unit_is_completed(places: Places) -> None:
    """As a killed seeder leaves it: the missing files come, those in place are not touched."""
    seed(places)
    gone, there = places.root / "triton/KEY/__grp__k.json", places.root / "triton/KEY/k.cubin"
    gone.unlink()
    before = identity(there)
    plan = seed(places)
    assert [unit.key for unit in plan.missing] == ["triton/KEY"]
    assert gone.is_file()
    assert identity(there) == before


def test_a_unit_that_was_not_staged_whole_is_not_seeded(places: Places) -> None:
    """A pack that lacked a file gives none of that unit, and all of the others."""
    with Seeder(places) as seeder:
        plan = seeder.plan(units_of(CONTENTS))
        for unit in plan.missing:
            for entry in unit.entries:
                if entry.path != "triton/KEY/k.json":
                    seeder.stage(entry, io.BytesIO(CONTENTS[entry.path]))
        seeder.commit(plan.missing)
    assert files(places.root) == {path for path in CONTENTS if not path.startswith("triton/")}


def test_what_fails_its_check_leaves_nothing(places: Places) -> None:
    """The source finds at its end that the digest is wrong: nothing of it can be committed."""

    class Wrong(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(3)
            if not data:
                raise IntegrityError("not the digest")
            return data

    units = units_of({"inductor/ab/c.so": b"library"})
    with Seeder(places) as seeder:
        with pytest.raises(IntegrityError, match="not the digest"):
            seeder.stage(units[0].entries[0], Wrong(b"something else"))
        seeder.commit(units)
        assert files(places.root / "inductor" / "ab") == set()
        # A second source for the same entry, after the first was wrong.
        seeder.stage(units[0].entries[0], io.BytesIO(b"library"))
        seeder.commit(units)
    assert files(places.root) == {"inductor/ab/c.so"}


def test_a_group_that_points_outside_is_refused(places: Places) -> None:
    """The bytes are what the manifest says, and still name a file that no unit holds."""
    hostile = json.dumps({"child_paths": {"k.cubin": "../../inductor/ab/c.so"}}).encode()
    contents = {"triton/KEY/__grp__k.json": hostile}
    with Seeder(places) as seeder, pytest.raises(IntegrityError, match="outside its folder"):
        stage(seeder, units_of(contents), contents)
    assert files(places.root) == set()


def test_units_without_a_place_are_left_out(tmp_path: Path) -> None:
    """Only the directories that were named are seeded."""
    places = Places(tmp_path, (("inductor", tmp_path),))
    plan = seed(places)
    assert {unit.section for unit in plan.missing} == {"inductor"}
    assert {path.split("/")[0] for path in files(tmp_path)} == {"ab", "fxgraph", "aotautograd"}
    with Seeder(places) as seeder, pytest.raises(TccacheError, match="no directory was given"):
        stage(seeder, [unit for unit in units_of(CONTENTS) if unit.section == "triton"])


def test_who_made_the_units_is_remembered(places: Places) -> None:
    """Seeded or found in place, a unit is never published as this process's own."""
    seed(places)
    assert set(Ledger.read(places.records).origins) == {u.key for u in units_of(CONTENTS)}
    (places.records / "ledger.json").unlink()
    seed(places)
    assert set(Ledger.read(places.records).origins.values()) == {ORIGIN}


def copied(places: Places, folder: Path) -> Places:
    shutil.copytree(places.root, folder)
    shutil.rmtree(places.root)
    return under(folder)


def moved(places: Places, folder: Path) -> Places:
    places.root.rename(folder)
    return under(folder)


@pytest.mark.parametrize("move", [copied, moved])
def test_the_groups_of_a_moved_directory_are_put_right(
    places: Places, tmp_path: Path, move: Callable[[Places, Path], Places]
) -> None:
    """All bytes are in place, but the groups lead to where they were: no transfer is needed.

    Not even where inodes and times are as the ledger recorded them.
    """
    seed(places)
    there = move(places, tmp_path / "there")
    assert sizes(seed(there)) == (4, 0, 0)
    folder = there.root / "triton" / "KEY"
    assert child_paths(folder / "__grp__k.json") == {
        name: str(folder / name) for name in ("k.cubin", "k.json")
    }
    rows = Ledger.read(there.records).rows
    assert all(row.is_at(there.root / path) for path, row in rows.items())
    assert rows.keys() == CONTENTS.keys()


def test_a_group_under_another_name_of_its_folder_is_left(places: Places, tmp_path: Path) -> None:
    """A link to the live directory: the paths lead there, so the file is not touched."""
    seed(places)
    (tmp_path / "alias").symlink_to(places.root)
    group = places.root / "triton/KEY/__grp__k.json"
    before = identity(group)
    assert sizes(seed(under(tmp_path / "alias"))) == (4, 0, 0)
    assert identity(group) == before


def test_without_hard_links_files_are_renamed(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT, some FUSE and network file systems: as whole, and still nothing is overwritten."""

    def no_links(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(source), None, str(target))

    monkeypatch.setattr(os, "link", no_links)
    with Seeder(places) as seeder:
        plan = seeder.plan(units_of(CONTENTS))
        stage(seeder, plan.missing)
        file = places.root / "inductor/ab/cstem.so"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"quicker")
        seeder.commit(plan.missing)
    assert file.read_bytes() == b"quicker"
    assert files(places.root) == set(CONTENTS)
    file.unlink()
    assert sizes(seed(places)) == (3, 1, 0)
    assert file.read_bytes() == CONTENTS["inductor/ab/cstem.so"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o000, 0o644)])
def test_files_are_as_open_as_the_umask_says(places: Places, umask: int, mode: int) -> None:
    """An init container's user pulls, another user's process compiles; only the first may write."""
    before = os.umask(umask)
    try:
        seed(places)
    finally:
        os.umask(before)
    assert {os.stat(places.root / path).st_mode & 0o777 for path in CONTENTS} == {mode}


def test_stages_of_a_killed_seeder_are_removed(places: Places) -> None:
    """Also where nothing is to be seeded any more, and in every directory."""
    seed(places)
    with Seeder(places) as seeder:
        name = seeder._stage_of("inductor/x").name
    left = [folder / name for _, folder in places.folders[:2]]
    for stage_left in left:
        stage_left.mkdir()
        (stage_left / "0").write_bytes(b"half")
    assert sizes(seed(places)) == (4, 0, 0)
    assert not any(stage_left.exists() for stage_left in left)


def test_the_stage_of_another_live_directory_is_left(tmp_path: Path) -> None:
    """Two environments may share Triton's directory without sharing a lock: both can seed."""
    triton = tmp_path / "triton"
    one, two = (
        Places(tmp_path / name, (("inductor", tmp_path / name), ("triton", triton)))
        for name in ("one", "two")
    )
    units = [unit for unit in units_of(CONTENTS) if unit.section == "triton"]
    with Seeder(one) as seeder:
        stage(seeder, units)
        seed(two, {"inductor/ab/c.py": b"code"})
        seeder.commit(units)
    assert {path.name for path in (triton / "KEY").iterdir()} == {
        *("__grp__k.json", "k.cubin", "k.json")
    }
