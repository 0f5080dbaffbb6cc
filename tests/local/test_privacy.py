"""Nobody else can put files into a live directory: refused, or closed again, and told."""

from __future__ import annotations

import io
import json
import os
import random
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import UntrustedError
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local.live import INDUCTOR, TRITON, live_directory
from cachesvc.local.places import under
from cachesvc.local.privacy import SHARED
from cachesvc.local.seed import Seeder

pytestmark = pytest.mark.usefixtures("fresh_homes")

ENVIRONMENT = "0123456789abcdef" * 4
BELOW = Path("live", ENVIRONMENT[:16])
OTHER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(folder: Path) -> int:
    return stat.S_IMODE(os.stat(folder).st_mode)


def made(folder: Path, bits: int) -> Path:
    folder.mkdir(parents=True)
    folder.chmod(bits)
    return folder


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A live directory that was used before, under XDG_CACHE_HOME."""
    root = live_directory(ENVIRONMENT, {"XDG_CACHE_HOME": str(tmp_path)}).root
    made(root / "inductor" / "ab", 0o755)
    (root / "inductor" / "ab" / "kernel.so").touch(0o644)
    return root


def found_again(tmp_path: Path, **environ: str) -> tuple[Path, tuple[str, ...]]:
    found = live_directory(ENVIRONMENT, {"XDG_CACHE_HOME": str(tmp_path), **environ})
    return found.root, found.notes


# Our own directories.


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_made_is_for_its_user_alone(tmp_path: Path, umask: int) -> None:
    """Whatever the umask, also the directories on the way."""
    before = os.umask(umask)
    try:
        root = live_directory(ENVIRONMENT, {"HOME": str(tmp_path / "home")}).root
    finally:
        os.umask(before)
    folders = [root / ".tccache", root, *root.parents][: -len(tmp_path.parents) - 1]
    assert folders[-1] == tmp_path / "home"
    assert {mode(folder) for folder in folders} == {0o700}


@pytest.mark.parametrize("up", [0, 1, 2])
@pytest.mark.parametrize("bits", [0o777, 0o775, 0o757])
def test_one_that_was_opened_is_closed_again(
    tmp_path: Path, live: Path, up: int, bits: int
) -> None:
    """The live directory, the one of all of them, and our home: nothing was put there meanwhile."""
    folder = [live, *live.parents][up]
    folder.chmod(bits)
    root, notes = found_again(tmp_path)
    assert root == live
    assert not mode(folder) & 0o022
    (note,) = notes
    assert note.startswith(f"{folder} was closed to others: ")
    assert found_again(tmp_path) == (live, ())


def test_one_that_others_may_look_into_is_closed_without_a_word(tmp_path: Path, live: Path) -> None:
    """What lies in it may be open to all, as a program without a umask makes it."""
    live.chmod(0o755)
    assert found_again(tmp_path) == (live, ())
    assert mode(live) == 0o700


@as_root
@pytest.mark.parametrize("what", ["file", "folder", "link"])
@pytest.mark.parametrize("bits", [0o777, 0o755])
def test_one_that_was_opened_and_holds_what_others_made(
    tmp_path: Path, live: Path, what: str, bits: int
) -> None:
    """The mode can be put right, what was put there cannot: it is refused, and stays as it is."""
    planted = live / "inductor" / "ab" / "planted"
    if what == "folder":
        planted.mkdir()
    else:
        planted.write_text("") if what == "file" else planted.symlink_to("/elsewhere")
    os.chown(planted, OTHER, OTHER, follow_symlinks=False)
    live.chmod(bits)
    root, notes = found_again(tmp_path)
    assert root != live
    assert f"{planted}: it belongs to another user (UID {OTHER}): remove {live}" in notes[0]
    assert f"{SHARED}=1" in notes[0]
    assert mode(live) == bits


def test_one_that_was_opened_and_holds_what_others_could_change(tmp_path: Path, live: Path) -> None:
    """A file of this user that everybody could write to, as a program without a umask makes it."""
    file = live / "inductor" / "ab" / "kernel.so"
    file.chmod(0o666)
    assert found_again(tmp_path) == (live, ())  # nobody could come by it
    live.chmod(0o755)
    root, notes = found_again(tmp_path)
    assert root != live
    assert f"{file}: every user of this machine can write to it" in notes[0]


@as_root
@pytest.mark.parametrize("up", [0, 1, 2])
def test_one_of_another_user(tmp_path: Path, live: Path, up: int) -> None:
    """Whoever owns a directory on the way decides what is found at its end."""
    folder = [live, *live.parents][up]
    os.chown(folder, OTHER, OTHER)
    root, notes = found_again(tmp_path)
    assert root != live
    assert f"{folder}: it belongs to another user (UID {OTHER})" in notes[0]
    assert "choose a directory of your own, or set TCCACHE_SHARED=1" in notes[0]


def test_a_directory_that_is_not_ours_is_never_changed(tmp_path: Path) -> None:
    """A home that others write to is passed over: nothing is made in it, and its mode stays."""
    cache = made(tmp_path / "open" / ".cache", 0o777)
    for environ in ({"HOME": str(cache.parent)}, {"TCCACHE_HOME": str(cache)}):
        found = live_directory(ENVIRONMENT, environ)
        assert found.chosen_by == "the temporary directory"
        assert f"chmod go-w {cache}, or set {SHARED}=1 if everyone" in found.notes[0]
    assert mode(cache) == 0o777
    assert list(cache.iterdir()) == []


def test_a_sticky_directory_is_accepted(tmp_path: Path) -> None:
    """A scratch disk that all users share as they do /tmp."""
    scratch = made(tmp_path / "scratch", 0o1777)
    found = live_directory(ENVIRONMENT, {"TCCACHE_HOME": str(scratch)})
    assert (found.root, found.notes) == (scratch / BELOW, ())
    assert mode(scratch / "live") == 0o700


@as_root
def test_a_name_that_another_user_took_in_a_sticky_directory(tmp_path: Path) -> None:
    """Somebody was there first: as good as a directory of theirs."""
    scratch = made(tmp_path / "scratch", 0o1777)
    taken = made(scratch / "live", 0o755)
    os.chown(taken, OTHER, OTHER)
    found = live_directory(ENVIRONMENT, {"TCCACHE_HOME": str(scratch)})
    assert not found.root.is_relative_to(scratch)
    assert list(taken.iterdir()) == []


def test_a_link_of_ones_own_is_followed(tmp_path: Path) -> None:
    """~/.cache is often a link to where there is more room; what is open behind it is closed."""
    disk = made(tmp_path / "disk", 0o755)
    (tmp_path / "cache").symlink_to(disk)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert live_directory(ENVIRONMENT, environ).notes == ()
    (disk / "tccache").chmod(0o777)
    found = live_directory(ENVIRONMENT, environ)
    assert found.root == tmp_path / "cache" / "tccache" / BELOW
    assert f"{disk}/tccache was closed to others" in found.notes[0]
    disk.chmod(0o777)
    assert live_directory(ENVIRONMENT, environ).root != found.root


@as_root
def test_a_link_of_another_user_is_not_followed(tmp_path: Path, live: Path) -> None:
    """Its owner can make it lead elsewhere."""
    (tmp_path / "link").symlink_to(tmp_path)
    os.chown(tmp_path / "link", OTHER, OTHER, follow_symlinks=False)
    root, notes = found_again(tmp_path / "link")
    assert root.resolve() != live
    assert f"{tmp_path}/link: it belongs to another user" in notes[0]


# Directories that the user set.


@pytest.mark.parametrize("name", [INDUCTOR, TRITON])
@pytest.mark.parametrize("bits", [0o777, 0o775, 0o1777])
def test_the_users_directory_is_passed_over_and_stays(tmp_path: Path, name: str, bits: int) -> None:
    """It is not ours to close; a sticky bit does not keep others from adding files."""
    mine = made(tmp_path / "mine", bits)
    found = live_directory(ENVIRONMENT, {name: str(mine), "HOME": str(tmp_path)})
    assert not any(folder.is_relative_to(mine) for _, folder in found.places.folders)
    (note,) = found.notes
    assert note.startswith(f"{name}={mine} was passed over: others can put files there, and what")
    assert f"chmod go-w {mine}, or set {SHARED}=1" in note
    assert mode(mine) == bits
    assert list(mine.iterdir()) == []


def test_a_name_that_others_could_take_is_taken(tmp_path: Path) -> None:
    """The user's directory is not there yet, and its place is one where everybody makes names."""
    mine = made(tmp_path / "scratch", 0o1777) / "a" / "mine"
    found = live_directory(ENVIRONMENT, {INDUCTOR: str(mine)})
    assert (found.root, found.notes) == (mine, ())
    assert mode(mine) == mode(mine.parent) == 0o700


@as_root
@pytest.mark.parametrize("below", ["", "inductor"])
def test_records_that_another_user_made(tmp_path: Path, below: str) -> None:
    """They would say that bytes were verified which were not; also those of our own layout."""
    records = made(tmp_path / "mine" / ".tccache", 0o755)
    os.chown(records, OTHER, OTHER)
    mine = tmp_path / "mine" / below
    found = live_directory(ENVIRONMENT, {INDUCTOR: str(mine), "HOME": str(tmp_path)})
    assert found.chosen_by == "HOME"
    assert f"{records}: it belongs to another user" in found.notes[0]


@as_root
@pytest.mark.parametrize("name", ["ledger.json", "lock", "receipts"])
def test_a_record_that_another_user_made(tmp_path: Path, live: Path, name: str) -> None:
    """It was put there while the directory was open, which shows no more: it is not believed, and
    nothing is opened through it. So in the user's directory."""
    record = live / ".tccache" / name
    record.symlink_to(tmp_path / "elsewhere")
    os.chown(record, OTHER, OTHER, follow_symlinks=False)
    root, notes = found_again(tmp_path)
    assert root != live
    assert f"{record}: it belongs to another user (UID {OTHER}): remove {record}, or" in notes[0]
    users = live_directory(ENVIRONMENT, {INDUCTOR: str(live), "HOME": str(tmp_path / "home")})
    assert users.chosen_by == "HOME"
    assert str(record) in users.notes[0]


# Whoever means to share.


def test_whoever_means_it_says_so(tmp_path: Path) -> None:
    """A volume of a pod that is open to all: used as it is, without a note."""
    volume = made(tmp_path / "volume", 0o777)
    environ = {"TCCACHE_HOME": str(volume), SHARED: "1"}
    found = live_directory(ENVIRONMENT, environ)
    assert (found.root, found.notes) == (volume / BELOW, ())
    assert mode(volume) == 0o777
    users = live_directory(ENVIRONMENT, {INDUCTOR: str(volume), SHARED: "1"})
    assert (users.root, users.notes) == (volume, ())
    for off in ("", "0"):
        assert live_directory(ENVIRONMENT, {**environ, SHARED: off}).root != found.root


@as_root
def test_two_users_share_a_directory(open_folder: Path, unprivileged: Callable[..., Any]) -> None:
    """An init container's user seeds; another one finds the place, locks it and adds to it."""
    before = os.umask(0)
    try:
        environ = {"TCCACHE_HOME": str(open_folder), SHARED: "1"}
        first = live_directory(ENVIRONMENT, environ)
        with Seeder(first.places):
            made(first.folder("inductor"), 0o777)
        root, notes = unprivileged(
            """
            found = live.live_directory(sys.argv[1], os.environ)
            with seed.Seeder(found.places):
                (found.folder("inductor") / "added").touch()
            show([str(found.root), list(found.notes)])
            """,
            ENVIRONMENT,
            environ=environ,
        )
    finally:
        os.umask(before)
    assert (Path(root), notes) == (first.root, [])
    assert (first.folder("inductor") / "added").exists()


# Links in a live directory.


def seed_one(root: Path) -> None:
    """What a pull does with a unit of one file."""
    entry = Entry("inductor/ab/kernel.py", 4, digest_bytes(b"code"))
    unit = Unit("inductor/ab/kernel", (entry,), Origin("2026-01-01T00:00:00.000000Z", "any"))
    with Seeder(under(root)) as seeder:
        seeder.stage(entry, io.BytesIO(b"code"))
        seeder.commit([unit])


@as_root
@pytest.mark.parametrize("link", ["inductor", "inductor/ab"])
def test_nothing_is_seeded_through_a_link_that_others_made(tmp_path: Path, link: str) -> None:
    """It was planted when the directory was open: nothing is written where it leads."""
    elsewhere = made(tmp_path / "elsewhere", 0o755)
    root = made(tmp_path / "live", 0o700)
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(elsewhere)
    os.chown(root / link, OTHER, OTHER, follow_symlinks=False)
    text = f"{root / link} is a link, and it belongs to another user (UID {OTHER}): remove it"
    with pytest.raises(UntrustedError, match=re.escape(text)):
        seed_one(root)
    assert list(elsewhere.rglob("*")) == []
    (root / link).unlink()
    (root / link).symlink_to(elsewhere)
    seed_one(root)
    assert len(list(elsewhere.rglob("kernel.py"))) == 1


# Somebody who tries.

ATTACKER = """
import json, os, sys
os.setgroups([4242])
os.setgid(12345)
os.setuid(12345)
os.umask(0)

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        pass

def plant(folder):
    attempt(os.makedirs, folder)
    attempt(lambda: open(os.path.join(folder, "planted.so"), "x").close())

def exchange(step, below):
    attempt(os.rename, step, step + ".old")
    if not os.path.lexists(step):
        plant(os.path.join(step, below))

for line in sys.stdin:
    steps, folder = json.loads(line)
    plant(folder)
    for step in steps:
        exchange(step, os.path.relpath(folder, step))
        plant(step)
    print("tried", flush=True)
"""


@pytest.fixture
def attack() -> Iterator[Callable[[list[Path], Path], None]]:
    """A function by which a real process of another user, who is in the directories' group, does
    what it can on the way to a folder: adds files, makes what is missing, exchanges directories."""
    process = subprocess.Popen(
        [sys.executable, "-c", ATTACKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    assert process.stdin
    assert process.stdout
    told, heard = process.stdin, process.stdout

    def attack(steps: list[Path], folder: Path) -> None:
        told.write(json.dumps([[str(step) for step in steps], str(folder)]) + "\n")
        told.flush()
        assert heard.readline() == "tried\n"

    yield attack
    told.close()
    heard.close()
    process.wait()


MODES = (0o700, 0o755, 0o775, 0o777, 0o1777, 0o2775)


@as_root
@pytest.mark.parametrize("layouts", [80, pytest.param(800, marks=pytest.mark.slow)])
def test_nothing_that_another_user_does_is_found(
    open_folder: Path, attack: Callable[[list[Path], Path], None], layouts: int
) -> None:
    """80 ways, and 800, with random modes, groups, owners and missing ends; the other user acts
    before the directory is chosen and after: what is used never holds a file of theirs. Some of
    their files do lie in what was refused."""
    chance = random.Random(7)
    open_folder.chmod(0o755)
    planted = used = 0
    for number in range(layouts):
        base = open_folder / str(number)
        temporary = made(base / "tmp", 0o1777)
        steps = [base / "cache", base / "cache/tccache", base / "cache/tccache/live"]
        steps += [steps[-1] / ENVIRONMENT[:16], steps[-1] / ENVIRONMENT[:16] / "inductor"]
        for step in steps[: chance.randint(1, len(steps))]:
            step.mkdir()
            step.chmod(chance.choice(MODES))
            os.chown(step, OTHER if chance.random() < 0.1 else 0, chance.choice([0, 4242]))
        if chance.random() < 0.5:
            attack(steps, steps[-1])
        name = chance.choice(["TCCACHE_HOME", "XDG_CACHE_HOME", INDUCTOR])
        value = {INDUCTOR: steps[-1], "TCCACHE_HOME": steps[1], "XDG_CACHE_HOME": steps[0]}[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(temporary))
            found = live_directory(ENVIRONMENT, {name: str(value)})
        used += found.root.is_relative_to(steps[0])
        attack([*steps, found.root, *found.root.parents[:3]], found.folder("inductor"))
        for folder, folders, files in os.walk(found.root):
            for item in (folder, *(os.path.join(folder, x) for x in (*folders, *files))):
                assert os.lstat(item).st_uid != OTHER, item
        planted += any("planted.so" in files for _, _, files in os.walk(base))
    assert planted > layouts / 4
    assert used > layouts / 20
