"""Seeding among real processes: readers that poll, seeders that race, seeders that are killed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import BusyError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.layout import unit_key
from cachesvc.local.ledger import Ledger
from cachesvc.local.places import Places, under
from cachesvc.local.seed import Seeder

ORIGIN = Origin("2026-01-01T00:00:00.000000Z", "any", segment="b" * 64)
KERNELS = ("ONE", "TWO", "THREE")
BIG = 3 << 20

PRELUDE = """
import io, os, pickle, sys
from pathlib import Path
from cachesvc.local.seed import Seeder

with open(sys.argv[1], "rb") as file:
    places, units, contents = pickle.load(file)

def say(text):
    print(text, flush=True)

def stage(seeder, units, make=io.BytesIO):
    for unit in units:
        for entry in unit.entries:
            seeder.stage(entry, make(contents[entry.path]))
"""

# Answers each line with what is wrong with what it sees.
READER = """
import json

def wrong():
    seen = {}
    for path, data in contents.items():
        try:
            seen[path] = (places.root / path).read_bytes()
        except FileNotFoundError:
            continue
        if path.endswith(".json"):
            listed = json.loads(seen[path])["child_paths"]
            yield from (f"{path} lists {p}" for p in listed.values() if not Path(p).is_file())
        elif seen[path] != data:
            yield f"{path} has {len(seen[path])} bytes"
    graph = any("fxgraph" in path for path in seen)
    if graph and "inductor/ab/cstem.so" not in seen:
        yield "a graph before its library"
    if any("aotautograd" in path for path in seen) and not graph:
        yield "an AOTAutograd entry before its graph"

say("ready")
for line in sys.stdin:
    say("; ".join(wrong()) or "whole")
"""

# Stops for ever at the second chunk of the fourth file.
HALF_STAGED = """
begun = []

class Slow(io.BytesIO):
    def read(self, size=-1):
        if self.tell() == 0:
            begun.append(self)
        elif len(begun) == 4:
            say("half")
            sys.stdin.read()
        return super().read(size)

with Seeder(places) as seeder:
    stage(seeder, seeder.plan(units).missing, Slow)
"""

# Stops for ever before its sixth link.
HALF_COMMITTED = """
link, made = os.link, []

def link_some(source, target):
    if len(made) == 5:
        say("half")
        sys.stdin.read()
    made.append(target)
    link(source, target)

os.link = link_some
with Seeder(places) as seeder:
    plan = seeder.plan(units)
    stage(seeder, plan.missing)
    seeder.commit(plan.missing)
"""

HOLDER = """
with Seeder(places):
    say("held")
    sys.stdin.read()
"""

RACER = """
say("ready")
sys.stdin.readline()
with Seeder(places) as seeder:
    plan = seeder.plan(units)
    stage(seeder, plan.missing)
    seeder.commit(plan.missing, plan.in_place)
say(f"{len(plan.missing)} {len(plan.in_place)}")
"""

Start = Callable[[str], "subprocess.Popen[str]"]


def group_of(kernel: str) -> bytes:
    names = [f"{kernel}.cubin", f"{kernel}.ptx"]
    return json.dumps({"child_paths": dict(zip(names, names, strict=True))}).encode()


def make_contents() -> dict[str, bytes]:
    contents = {"inductor/ab/cstem.so": b"s" * BIG, "inductor/ab/cstem.py": b"p"}
    for kernel in KERNELS:
        contents[f"triton/{kernel}/__grp__{kernel}.json"] = group_of(kernel)
        contents[f"triton/{kernel}/{kernel}.cubin"] = b"c" * BIG
        contents[f"triton/{kernel}/{kernel}.ptx"] = kernel.encode()
    contents["inductor/fxgraph/xy/fkey/one"] = b"g" * BIG
    contents["inductor/aotautograd/akey/one"] = b"a"
    return contents


CONTENTS = make_contents()


def units_of(contents: Mapping[str, bytes]) -> list[Unit]:
    entries: dict[str, list[Entry]] = {}
    for path, data in contents.items():
        key = unit_key(path.split("/"))
        entries.setdefault(key, []).append(Entry(path, len(data), digest_bytes(data)))
    return [Unit(key, tuple(found), ORIGIN) for key, found in entries.items()]


class Watched:
    """A source that has somebody look at the directory before each chunk."""

    def __init__(self, data: bytes, look: Callable[[], None]) -> None:
        self._data = memoryview(data)
        self._look = look

    def read(self, size: int = -1, /) -> bytes:
        self._look()
        chunk, self._data = self._data[:size], self._data[size:]
        return bytes(chunk)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return under(tmp_path / "live")


@pytest.fixture
def start(places: Places, tmp_path: Path) -> Iterator[Start]:
    """A function that starts a process with this source; none of them outlives the test."""
    cargo = tmp_path / "cargo"
    cargo.write_bytes(pickle.dumps((places, units_of(CONTENTS), CONTENTS)))
    started: list[subprocess.Popen[str]] = []

    def start(source: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + source, str(cargo)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL: nothing of the process can tidy up."""
    process.kill()
    process.wait()


def files(root: Path) -> set[str]:
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in paths if not any(part.startswith(".") for part in path.parts)}


def stages(root: Path) -> list[Path]:
    return list(root.rglob(".tccache-stage-*"))


def seed(places: Places, look: Callable[[], None] = lambda: None) -> tuple[int, int, int]:
    with Seeder(places) as seeder:
        plan = seeder.plan(units_of(CONTENTS))
        for unit in plan.missing:
            for entry in unit.entries:
                seeder.stage(entry, Watched(CONTENTS[entry.path], look))
        seeder.commit(plan.missing, plan.in_place)
    return len(plan.in_place), len(plan.missing), len(plan.kept)


def assert_all_seeded(places: Places) -> None:
    assert files(places.root) == set(CONTENTS)
    assert stages(places.root) == []
    for path, data in CONTENTS.items():
        if not path.endswith(".json"):
            assert (places.root / path).read_bytes() == data


def test_a_reader_sees_only_whole_things(
    places: Places, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process looks before every chunk and around every link: no half file, no group
    without its files, no entry without what it leads to."""
    reader = start(READER)
    assert hear(reader) == "ready"
    answers: list[str] = []

    def look() -> None:
        tell(reader)
        answers.append(hear(reader))

    link = os.link

    def watched_link(source: Path, target: Path) -> None:
        look()
        link(source, target)
        look()

    monkeypatch.setattr(os, "link", watched_link)
    assert seed(places, look) == (0, 6, 0)
    look()
    assert len(answers) > 3 * len(CONTENTS)
    assert set(answers) == {"whole"}
    monkeypatch.undo()
    assert_all_seeded(places)


def test_the_reader_would_see_half_a_file(places: Places, start: Start) -> None:
    """Written in place, as a copying program does, the same files are seen half: what the test
    above guards."""
    reader = start(READER)
    assert hear(reader) == "ready"
    file = places.root / "inductor/ab/cstem.so"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENTS["inductor/ab/cstem.so"][: BIG // 2])
    tell(reader)
    assert "cstem.so has" in hear(reader)


def test_a_seeder_killed_while_it_stages_leaves_nothing(places: Places, start: Start) -> None:
    """Nothing is visible, and the next one removes the stage and seeds everything."""
    process = start(HALF_STAGED)
    assert hear(process) == "half"
    kill(process)
    assert files(places.root) == set()
    assert stages(places.root) != []
    assert seed(places) == (0, 6, 0)
    assert_all_seeded(places)


def test_a_seeder_killed_while_it_commits_leaves_whole_files(places: Places, start: Start) -> None:
    """Five files are there, each whole, none of them a group; the next seeder adds the rest."""
    process = start(HALF_COMMITTED)
    assert hear(process) == "half"
    kill(process)
    there = files(places.root)
    assert len(there) == 5
    assert not any(path.endswith(".json") or "fxgraph" in path for path in there)
    assert all((places.root / path).read_bytes() == CONTENTS[path] for path in there)
    before = {path: os.stat(places.root / path).st_ino for path in there}
    in_place, missing, kept = seed(places)
    assert (in_place + missing, kept) == (6, 0)
    assert_all_seeded(places)
    assert {path: os.stat(places.root / path).st_ino for path in there} == before


def test_of_four_seeders_one_transfers(places: Places, start: Start) -> None:
    """Ranks of one node start together: one brings the units, the others find them in place."""
    racers = [start(RACER) for _ in range(4)]
    assert [hear(racer) for racer in racers] == ["ready"] * 4
    for racer in racers:
        tell(racer)
    answers = sorted(hear(racer) for racer in racers)
    assert answers == ["0 6", "0 6", "0 6", "6 0"]
    assert [racer.wait() for racer in racers] == [0] * 4
    assert_all_seeded(places)


def test_waiting_has_an_end(places: Places, start: Start) -> None:
    """Another process holds the directory: after its patience the seeder gives up and says so."""
    holder = start(HOLDER)
    assert hear(holder) == "held"
    with pytest.raises(BusyError, match="another process has been seeding"):
        Seeder(places, patience_s=0.1).__enter__()
    tell(holder)
    holder.communicate()
    assert seed(places) == (0, 6, 0)


def test_a_killed_holder_blocks_nobody(places: Places, start: Start) -> None:
    """The lock is the kernel's: it is free the moment its holder is gone, whatever file is left."""
    holder = start(HOLDER)
    assert hear(holder) == "held"
    kill(holder)
    with Seeder(places, patience_s=0):
        pass
    assert (places.records / "lock").exists()


def test_two_threads_do_not_share_the_lock(places: Places) -> None:
    """Two starts in one process exclude each other as two processes do."""
    refused: list[BaseException] = []

    def attempt() -> None:
        try:
            Seeder(places, patience_s=0).__enter__()
        except BusyError as error:
            refused.append(error)

    with Seeder(places):
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_what_fails_with_the_lock_just_taken_gives_it_back(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between the lock and the first look: the next start of this process is not
    locked out by the error that somebody keeps."""

    def interrupted(records: Path) -> Ledger:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "read", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            Seeder(places).__enter__()
    with Seeder(places, patience_s=0):
        assert kept.traceback
