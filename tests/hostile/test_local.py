"""What a stranger leaves on the disk: mega-cache files, groups, pickles, records, directories."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import struct
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.core.paths import path_issue
from cachesvc.local import libraries
from cachesvc.local.broken import broken
from cachesvc.local.damage import damaged_units
from cachesvc.local.group import children, localise, points_into, relocate
from cachesvc.local.ledger import Ledger
from cachesvc.local.libraries import read_requirements
from cachesvc.local.megafile import Artifact, put_together, take_apart
from cachesvc.local.opened import open_entry
from cachesvc.local.pickles import scan as scan_pickle
from cachesvc.local.places import Places, under
from cachesvc.local.quarantine import read_quarantine
from cachesvc.local.receipt import read_receipt, receipt_of, write_receipt
from cachesvc.local.seed import Seeder
from cachesvc.local.strikes import died_before
from cachesvc.local.tree import scan
from cachesvc.local.walk import remove_all

from .tries import quick_and_slow, try_all

MADE = runpy.run_path(str(Path(__file__).parent / "make_corpus.py"))
RUNS: bytes = MADE["RUNS"]
MAGIC = b"tccache-artifact/1 "
KEY = "triton/K/__grp__k.json"

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "..", "/etc/passwd", "a\0b", "\ud800", "triton/K", "inductor", 1e999]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def flipped(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with a few of them changed, some cut away, or a few put in."""

    def change(at: int, new: bytes, gone: int) -> bytes:
        return data[:at] + new + data[at + gone :]

    return st.builds(
        change, st.integers(0, len(data)), st.binary(max_size=9), st.integers(0, 30)
    )  # fmt: skip


MEGA = MADE["mega_of"](
    (b"aW5kdWN0b3I=", [(b"aw==", RUNS), (b"aw==", b"2")]), (b"cGdv", [(b"Li4vLi4=", RUNS)])
)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_any_mega_cache_file(tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a file is changed behind a right check sum, it is refused or its artifacts have
    paths that stay where they belong, and nothing in it is unpickled."""
    monkeypatch.chdir(tmp_path)

    def one(body: bytes) -> None:
        try:
            artifacts = take_apart(MADE["checked"](body), "it")
        except IntegrityError:
            return
        for artifact in artifacts:
            assert path_issue(artifact.path) is None
            assert Artifact.from_bytes(artifact.to_bytes(), "it") == artifact
        by_slot = {artifact.path: artifact for artifact in artifacts}
        again = take_apart(put_together(artifacts), "it")
        assert {artifact.path: artifact for artifact in again} == by_slot

    try_all(tries, flipped(MEGA[4:]), one)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_any_artifact(tries: int) -> None:
    """An entry of a mega-cache is refused, or can be written into a file for torch."""
    good = Artifact("inductor", "k", RUNS).to_bytes()

    def one(data: bytes) -> None:
        with suppress(IntegrityError):
            take_apart(put_together([Artifact.from_bytes(data, "it")]), "it")

    lines = JSON.map(lambda value: MAGIC + json.dumps(value).encode() + b"\nx")
    keyed = st.fixed_dictionaries({"type": JSON, "key": JSON}).map(lambda v: json.dumps(v).encode())
    keyed = keyed.map(lambda line: MAGIC + line + b"\n")
    try_all(tries, flipped(good) | lines | keyed, one)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_any_group(tries: int, tmp_path: Path) -> None:
    """A Triton group is refused, or every path in it lies in its own folder."""

    def one(data: bytes) -> None:
        with suppress(IntegrityError):
            for path in json.loads(localise(data, tmp_path, KEY))["child_paths"].values():
                assert os.path.dirname(os.path.normpath(path)) == str(tmp_path)
        with suppress(IntegrityError):
            children(data, KEY)
            points_into(data, tmp_path, KEY)
            bare = relocate(data, KEY)
            assert not any("/" in name for name in json.loads(bare)["child_paths"].values())

    good = json.dumps({"child_paths": {"k.cubin": "k.cubin", "x": "/tmp/k/x"}}).encode()
    paths = JSON | st.dictionaries(st.text(max_size=3), st.text(max_size=9) | JSON)
    named = paths.map(lambda value: json.dumps({"child_paths": value}).encode())
    start = b'{"child_paths":{},"x":'
    deep = st.integers(1, 3000).map(lambda n: start + b"[" * n + b"]" * n + b"}")
    try_all(tries, flipped(good) | named | deep, one)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_any_pickle(tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle is only read: it is no pickle, or gives texts; it never runs, whatever it holds."""
    monkeypatch.chdir(tmp_path)
    paths = ("inductor/fxgraph/ab/K/x", "inductor/aotautograd/K/x")
    entries = [Entry(path, 1, "0" * 64) for path in paths]

    def one(data: bytes) -> None:
        with suppress(ValueError):
            for text in scan_pickle(data).texts:
                text.encode()
        for entry in entries:
            open_entry(entry, data)

    opcodes = st.lists(st.integers(0, 255).map(lambda n: bytes([n])) | st.binary(max_size=9)).map(
        lambda parts: b"\x80\x04" + b"".join(parts) + b"."
    )
    numbers = st.sampled_from([b"I" + b"9" * 5000 + b"\n.", b"L" + b"9" * 5000 + b"L\n."])
    try_all(tries, flipped(RUNS) | opcodes | numbers | st.binary(max_size=99), one)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("tries", quick_and_slow(150, 4_000))
def test_any_library(tries: int) -> None:
    """Whether a library is whole is told of any header, and of what is none."""
    head = b"\x7fELF\x02\x01" + bytes(250)
    try_all(
        tries,
        flipped(head) | st.binary(max_size=250).map(lambda data: head[:6] + data),
        lambda data: broken("inductor/ab/x.so", data),
    )


@pytest.mark.parametrize("tries", quick_and_slow(40, 1_000))
def test_any_record(tries: int, tmp_path: Path) -> None:
    """Whatever a ledger, a quarantine or a start's record holds, it is passed over or has a sense
    that nothing stumbles over later."""
    records = tmp_path / ".tccache"
    (records / "starts").mkdir(parents=True)
    digest, number = "0" * 64, st.integers() | st.floats() | st.text(max_size=3)
    row = st.lists(number | st.just(digest), min_size=3, max_size=5) | JSON
    paths = st.sampled_from(["triton/K/a", "inductor", "", "inductor/ab/x", "\ud800"])
    ledger = st.fixed_dictionaries({
        "version": st.sampled_from([1, 1, 1, 2, "1"]),
        "triton": JSON,
        "rows": st.dictionaries(paths, row) | JSON,
        "origins": st.lists(st.tuples(JSON, JSON, JSON | st.just({}), JSON) | JSON) | JSON,
        "units": st.dictionaries(paths, st.sampled_from([0, -1, 7, "0", None])) | JSON,
        "signers": st.dictionaries(paths, st.lists(paths) | JSON) | JSON,
    })  # fmt: skip
    aside = st.fixed_dictionaries({
        "version": st.just(1),
        "units": st.lists(st.fixed_dictionaries({
            "unit": paths | JSON, "reason": JSON, "at": JSON, "sha256s": st.lists(JSON) | JSON,
            "segment": JSON,
        })) | JSON,
    })  # fmt: skip
    start = st.fixed_dictionaries({"segments": st.lists(JSON) | JSON, "deaths": number | JSON})

    def one(said: tuple[Any, Any, Any]) -> None:
        files = ("ledger.json", "quarantine.json", "starts/x.json")
        for name, value in zip(files, said, strict=True):
            (records / name).write_text(json.dumps(value))
        known = Ledger.read(records)
        known.settle(tmp_path)
        known.forget(["triton/K"])
        for item in read_quarantine(records):
            assert path_issue(item.unit) is None
        assert died_before(records, ["x"]) >= 0
        damaged_units(under(tmp_path))

    try_all(tries, st.tuples(ledger | JSON, aside | JSON, start | JSON), one)


@pytest.mark.parametrize("tries", quick_and_slow(200, 2_000))
def test_any_receipt(tries: int, tmp_path: Path) -> None:
    """A receipt that is not just as it was written is none: the start goes the long way."""
    seeded_file = tmp_path / "file"
    seeded_file.write_bytes(b"seeded")
    write_receipt(tmp_path, "scope", "key", receipt_of({"needs": []}, [seeded_file]))
    (file,) = (tmp_path / "receipts").iterdir()
    good = file.read_bytes()
    found = read_receipt(tmp_path, "scope", "key")
    assert found is not None
    assert found.in_place()

    def one(data: bytes) -> None:
        file.write_bytes(data)
        assert data == good or read_receipt(tmp_path, "scope", "key") is None

    bare = JSON.map(lambda value: json.dumps(value).encode())
    try_all(tries, flipped(good) | bare | st.just(good.partition(b"\n")[2]), one)


def elf(machine: int = 62, sections: int = 3, code: int = 64) -> bytearray:
    """A 64-bit library that is nothing but sections, all of them over the same code."""
    head = struct.pack(
        "<4sBBBB8xHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 1, 0, 3, machine, 1, 0, 0, 64 + code, 0, 64, 0, 0, 64, sections, 0),
    )
    one = struct.pack("<IIQQQQIIQQ", 0, 1, 6, 0, 64, code, 0, 0, 16, 0)
    return bytearray(head + b"\x90" * code + one * sections)


@pytest.mark.parametrize("tries", quick_and_slow(100, 4_000))
def test_any_elf(tries: int) -> None:
    """What a library needs is told in words that a manifest can hold, or it is damaged."""
    sound = bytes(elf(sections=1))
    assert read_requirements(sound) == ()

    def one(data: bytes) -> None:
        with suppress(IntegrityError):
            for need in read_requirements(b"\x7fELF\x02\x01" + data[6:]):
                assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", need.value)

    try_all(tries, flipped(sound) | flipped(bytes(elf())), one)


@pytest.mark.parametrize("version", ["\x1b[2J", "2.4\n", "1" * 65, "9" * 5000, "ä", "a b", "/"])
def test_odd_symbol_versions(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A library that asks for a version of no form that there is, is damaged: a manifest with it
    would be refused by every reader."""
    monkeypatch.setattr(libraries, "_versions_needed", lambda elf: [f"GLIBC_{version}"])
    with pytest.raises(IntegrityError, match="damaged native library: a symbol version"):
        read_requirements(bytes(elf(sections=1)))


def test_sections_over_each_other() -> None:
    """A thousand sections that are the same code are not read a thousand times."""
    with pytest.raises(IntegrityError, match="lie over each other"):
        read_requirements(bytes(elf(sections=1000, code=1 << 12)))


def test_odd_directories(tmp_path: Path) -> None:
    """A cache directory with links, pipes, sockets' names, depth and bytes of every kind gives the
    one good unit that lies in it; the rest is counted, nothing is followed, opened or raised."""
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "ab").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.py").write_text("secret")
    (tree / "ab" / "cab.py").write_text("good")
    (tree / "ab" / "link.py").symlink_to(outside / "secret.py")
    (tree / "cd").symlink_to(outside)
    (tree / "ab" / "loop").symlink_to(tree)
    os.mkfifo(tree / "ab" / "pipe.py")
    for name in (
        b"\xff\xfe.py",
        b"a\nb.py",
        b"\x1b[2J.py",
        b"back\\slash.py",
        "\u202ex.py".encode(),
    ):
        with open(os.path.join(os.fsencode(tree / "ab"), name), "wb") as file:
            file.write(b"odd")
    make_deep(tree, 1500)
    found = scan([("inductor", tree)])
    assert [unit.key for unit in found.units] == ["inductor/ab/cab"]
    assert dict(found.skipped) == {
        "link or special file": 4,
        "name that cannot be stored": 6,
    }
    places = Places(tmp_path, (("inductor", tree),))
    assert damaged_units(places) == ()
    assert remove_all(tree)  # pytest's own way fails in a folder that is deep enough


def make_deep(folder: Path, levels: int) -> None:
    """Folders in folders, deeper than any path is long."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def seeded(places: Places, files: dict[str, bytes]) -> tuple[int, int, int]:
    """Seeds each file as a unit of its own; how many were missing, in place and kept."""
    units = [
        Unit(path, (Entry(path, len(data), digest_bytes(data)),), Origin("", "any"))
        for path, data in files.items()
    ]
    with Seeder(places) as seeder:
        plan = seeder.plan(units)
        for unit in plan.missing:
            seeder.stage(unit.entries[0], io.BytesIO(files[unit.key]))
        seeder.commit(plan.missing, plan.in_place)
    return len(plan.missing), len(plan.in_place), len(plan.kept)


def test_a_pipe_in_the_way_is_not_waited_for(tmp_path: Path) -> None:
    """Where a file belongs lies a pipe that nobody writes to: it is left, and nothing hangs."""
    (tmp_path / "inductor" / "ab").mkdir(parents=True)
    os.mkfifo(tmp_path / "inductor" / "ab" / "x")
    assert seeded(under(tmp_path), {"inductor/ab/x": b"1", "inductor/ab/y": b"2"}) == (1, 0, 1)
    assert (tmp_path / "inductor" / "ab" / "y").read_bytes() == b"2"


class Folding(Places):
    """Directories on a file system that takes names for equal that differ in case or in the form
    of their letters."""

    def locate(self, path: str) -> Path | None:
        place = super().locate(path)
        name = unicodedata.normalize("NFC", path.rpartition("/")[2]).casefold()
        return place and place.parent / name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("extra/x/Kernel", "extra/x/kernel", id="case"),
        pytest.param("extra/x/straße", "extra/x/STRASSE", id="folding"),
        pytest.param("extra/x/\u00e4", "extra/x/a\u0308", id="normal form"),
    ],
)
def test_names_that_a_file_system_takes_for_equal(tmp_path: Path, first: str, second: str) -> None:
    """Elsewhere both arrive. Where they are one file it holds one of the two, whole; the other unit
    is never mixed into it, no pull writes it again, and none takes it for what it is not."""
    files = {first: b"one", second: b"two!"}
    assert seeded(under(tmp_path / "plain"), files) == (2, 0, 0)
    assert seeded(under(tmp_path / "plain"), files) == (0, 2, 0)
    places = Folding(tmp_path, (("extra", tmp_path / "extra"),))
    assert seeded(places, files) == (2, 0, 0)
    (file,) = (tmp_path / "extra" / "x").iterdir()
    held, status = file.read_bytes(), file.stat()
    assert held == b"one"
    for _ in range(2):
        assert seeded(places, files) == (0, 1, 1)
        assert file.read_bytes() == held
        assert file.stat().st_ino == status.st_ino
    assert [row.sha256 for row in Ledger.read(places.records).rows.values()] == [digest_bytes(held)]
