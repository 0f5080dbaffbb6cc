"""A live directory that compilers, seeders and collectors use at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cachesvc

from .conftest import Goods, Race, makers

# What a compiler does with Triton's cache: it uses a group that is there, and else writes each file
# beside and renames it, the group last.
COMPILE = """
import json, os, uuid
from pathlib import Path
from cachesvc.local.host import read_environment
from cachesvc.local.live import live_directory

live = live_directory(read_environment().digest, os.environ).root / "triton"
NAMES = ("k.cubin", "k.source")
END = "." * 5000

def put(file, text):
    part = file.parent / f"tmp.pid_{os.getpid()}_{uuid.uuid4()}"
    part.mkdir()
    (part / file.name).write_text(text)
    os.replace(part / file.name, file)
    part.rmdir()

def compiled(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        put(folder / name, "compiler" + END)
    children = {name: str(folder / name) for name in NAMES}
    put(folder / "__grp__k.json", json.dumps({"child_paths": children}))

def used(folder):
    group = folder / "__grp__k.json"
    if not group.exists():
        return False
    for file in json.loads(group.read_text())["child_paths"].values():
        assert Path(file).read_text().endswith(END), file
    return True

hits = 0
for _ in range(given["times"]):
    for letter in given["letters"]:
        folder = live / f"{letter}Y".ljust(52, "7")
        if used(folder):
            hits += 1
        else:
            compiled(folder)
            assert used(folder)
result = hits
"""

PULLS = """
import cachesvc
for name in given["names"]:
    cachesvc.pull(name, store=given["store"], require=True)
result = None
"""

# What a start does with its live directory; `tccache run` does the same before its program.
START = """
import cachesvc
from cachesvc.local.host import read_environment
from cachesvc.runtime.directories import current, use

live = current(read_environment().digest)
use(live)
seeded = [cachesvc.pull("m", store=given["store"], require=True).transfer.seeded for _ in "12"]
for _ in range(100):
    for letter in "ABC":
        folder = live.folder("triton") / f"{letter}Y".ljust(52, "7")
        assert (folder / "k.cubin").read_text() == "maker"
result = seeded
"""

COLLECT = """
from cachesvc.start.collect_live import collect_live
gone = 0
for _ in range(given["times"]):
    done = collect_live(older_than_s=0)
    assert done.failed == (), done.failed
    gone += len(done.removed)
result = gone
"""


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCCACHE_TRUST", "store")
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_compilers_beside_seeders(goods: Goods, race: Race, tmp_path: Path, home: Path) -> None:
    """Three compilers use and write twelve kernels while four processes seed them bundle by bundle:
    no compiler ever meets half a file, or a group without its files; nothing of it all is lost."""
    letters, end = "ABCDEFGHIJKL", "." * 5000
    for name in ("one", "two", "three"):
        folder = goods(name, letters)
        for file in folder.rglob("k.*"):
            file.write_text(name + end)
        cachesvc.push(name, store=tmp_path / "store", triton_dir=folder)
    pulls = {"names": ["one", "two", "three"] * 2, "store": tmp_path / "store", "home": home}
    compiles = {"letters": letters, "times": 20, "home": home}
    hits = race(*[(PULLS, pulls)] * 4, *[(COMPILE, compiles)] * 3)[4:]
    assert all(0 < each <= 20 * 12 for each in hits)
    (live,) = home.rglob("triton")
    there = [folder.name[0] for folder in live.iterdir() if not folder.name.startswith(".")]
    assert sorted(there) == list(letters)
    texts = {file.read_text() for file in live.rglob("k.*")}
    assert texts <= {maker + end for maker in ("one", "two", "three", "compiler")}
    assert not list(home.rglob(".tccache-stage-*"))


def test_collectors_beside_starts(goods: Goods, race: Race, tmp_path: Path, home: Path) -> None:
    """Three processes remove live directories that nobody uses, as often as they can, while eight
    start: what a start uses stays for its life; afterwards it can go, and comes again."""
    cachesvc.push("m", store=tmp_path / "store", triton_dir=goods("maker", "ABC"))
    start: dict[str, Any] = {"store": tmp_path / "store", "home": home}
    for _ in range(2):
        told = race(*[(START, start)] * 8, *[(COLLECT, {"times": 40, "home": home})] * 3)[:8]
        assert {seeded for seeded, _ in told} <= {0, 3}
        assert [again for _, again in told] == [0] * 8
        race((COLLECT, {"times": 1, "home": home}))
        assert not list(home.rglob("k.cubin"))
    assert race((START, start)) == [[3, 0]]
    (live,) = home.rglob("triton")
    assert makers(live) == dict.fromkeys("ABC", "maker")
    assert not list(home.rglob(".gone-*"))


PULL_TO_THE_END = """
from pathlib import Path
import cachesvc
try:
    for _ in range(given["times"]):
        cachesvc.pull("m", store=given["store"], require=True)
finally:
    Path(given["ended"]).touch()
"""

COLLECT_TO_THE_END = """
from pathlib import Path
from cachesvc.start.collect_live import collect_live
gone = 0
while not all(Path(ended).exists() for ended in given["ended"]):
    done = collect_live(older_than_s=0)
    assert done.failed == (), done.failed
    gone += len(done.removed)
result = gone
"""


def test_collectors_beside_pulls(goods: Goods, race: Race, tmp_path: Path, home: Path) -> None:
    """A pull holds its directory only as long as it is at work: collectors that take it away
    whenever they can make no pull fail, and the last pull has it all."""
    cachesvc.push("m", store=tmp_path / "store", triton_dir=goods("maker", "ABC"))
    ended = [tmp_path / "one", tmp_path / "two"]
    pulls = {"store": tmp_path / "store", "times": 25, "names": ["m"], "home": home}
    gone = race(
        *[(PULL_TO_THE_END, {**pulls, "ended": each}) for each in ended],
        *[(COLLECT_TO_THE_END, {"ended": ended, "home": home})] * 2,
    )[2:]
    assert sum(gone) > 1
    race((PULLS, pulls))
    (live,) = home.rglob("triton")
    assert makers(live) == dict.fromkeys("ABC", "maker")
