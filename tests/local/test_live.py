"""Where the live directory is: under every kind of home, and in child processes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.errors import BusyError, TccacheError
from cachesvc.local.live import INDUCTOR, TRITON, Live, live_directory
from cachesvc.local.places import Places, under
from cachesvc.local.seed import Seeder

pytestmark = pytest.mark.usefixtures("fresh_homes")

ENVIRONMENT = "0123456789abcdef" * 4
OTHER_ENVIRONMENT = "fedcba9876543210" * 4
BELOW = Path("live", ENVIRONMENT[:16])

SHOW = """
    try:
        found = live.live_directory(sys.argv[1], os.environ)
        show([str(found.root), found.chosen_by, list(found.notes)])
    except TccacheError as error:
        show(str(error))
"""


def temporary_home() -> Path:
    return Path(tempfile.gettempdir()) / f"tccache-{os.getuid()}"


def inherited(live: Live, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables as a process that uses the live directory sets them for its children."""
    folders = {INDUCTOR: str(live.folder("inductor")), TRITON: str(live.folder("triton"))}
    return {**environ, **folders}


# What chose it.


def test_the_users_directory_is_used(tmp_path: Path) -> None:
    """Inductor's directory as it is, Triton's where it lies by default, records in a dot-folder."""
    live = live_directory(ENVIRONMENT, {INDUCTOR: str(tmp_path / "mine")})
    assert (live.root, live.chosen_by, live.notes) == (tmp_path / "mine", INDUCTOR, ())
    assert live.folder("inductor") == tmp_path / "mine"
    assert live.folder("triton") == tmp_path / "mine" / "triton" / "0"
    assert live.folder("megacache") == tmp_path / "mine" / ".tccache" / "megacache"
    assert not (tmp_path / "mine").exists()


def test_the_users_triton_directory_is_used(tmp_path: Path) -> None:
    """With Inductor's directory set as well, and without."""
    triton = str(tmp_path / "kernels")
    both = live_directory(ENVIRONMENT, {INDUCTOR: str(tmp_path / "mine"), TRITON: triton})
    assert both.folder("triton") == Path(triton)
    one = live_directory(ENVIRONMENT, {TRITON: triton, "HOME": str(tmp_path)})
    assert one.root == tmp_path / ".cache" / "tccache" / BELOW
    assert one.folder("inductor") == one.root / "inductor"
    assert one.folder("triton") == Path(triton)


def test_relative_directories_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups hold absolute paths, and a process may change its directory."""
    monkeypatch.chdir(tmp_path)
    live = live_directory(ENVIRONMENT, {INDUCTOR: "mine", TRITON: "kernels"})
    assert live.root == tmp_path / "mine"
    assert live.folder("triton") == tmp_path / "kernels"
    assert live_directory(ENVIRONMENT, {"TCCACHE_HOME": "h"}).root == tmp_path / "h" / BELOW


@pytest.mark.parametrize(
    ("names", "chosen", "place"),
    [
        (("TCCACHE_HOME", "XDG_CACHE_HOME", "HOME"), "TCCACHE_HOME", "TCCACHE_HOME"),
        (("XDG_CACHE_HOME", "HOME"), "XDG_CACHE_HOME", "XDG_CACHE_HOME/tccache"),
        (("HOME",), "HOME", "HOME/.cache/tccache"),
    ],
)
def test_the_first_home_that_is_named(
    tmp_path: Path, names: tuple[str, ...], chosen: str, place: str
) -> None:
    """TCCACHE_HOME before XDG_CACHE_HOME before HOME; it exists afterwards, for this user only."""
    live = live_directory(ENVIRONMENT, {name: str(tmp_path / name) for name in names})
    assert (live.root, live.chosen_by, live.notes) == (tmp_path / place / BELOW, chosen, ())
    assert stat.S_IMODE(os.stat(live.root).st_mode) == 0o700
    assert live.folder("inductor").parent == live.folder("triton").parent == live.root
    assert [path for path in tmp_path.iterdir() if path.name in names] == [tmp_path / chosen]


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"TCCACHE_HOME": "", INDUCTOR: ""}])
def test_without_a_home_the_temporary_directory_serves(environ: dict[str, str]) -> None:
    """No variable, or an empty one, as some init systems start their services."""
    live = live_directory(ENVIRONMENT, environ)
    assert (live.root, live.notes) == (temporary_home() / BELOW, ())
    assert live.chosen_by == "the temporary directory"
    assert stat.S_IMODE(os.stat(temporary_home()).st_mode) == 0o700


def test_each_environment_has_its_own(tmp_path: Path) -> None:
    """Two torch versions of one user do not share a directory that the user did not set."""
    environ = {"HOME": str(tmp_path)}
    roots = {live_directory(env, environ).root for env in (ENVIRONMENT, OTHER_ENVIRONMENT)}
    assert len(roots) == 2


def test_a_section_without_a_place_is_said(tmp_path: Path) -> None:
    """Asked for a section that does not exist, the error names it."""
    live = Live(Places(tmp_path, ()), INDUCTOR)
    with pytest.raises(TccacheError, match="no place for inductor"):
        live.folder("inductor")


# Homes that cannot be used.


def test_a_home_that_cannot_be_made_is_passed_over(tmp_path: Path) -> None:
    """A file in the way: the next candidate is used, and the note says why."""
    (tmp_path / "file").write_text("")
    environ = {"TCCACHE_HOME": str(tmp_path / "file" / "below"), "HOME": str(tmp_path)}
    live = live_directory(ENVIRONMENT, environ)
    assert live.chosen_by == "HOME"
    (note,) = live.notes
    assert note == (f"{tmp_path}/file/below was passed over as live directory: Not a directory")


def test_a_home_mounted_noexec_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that is compiled there could not be loaded, as with Docker's tmpfs on /tmp."""
    noexec = os.statvfs_result((4096, 4096, 9, 9, 9, 9, 9, 9, os.ST_NOEXEC, 255))
    statvfs = os.statvfs

    def fake(path: Path) -> os.statvfs_result:
        return noexec if str(path).startswith(str(tmp_path / "noexec")) else statvfs(path)

    monkeypatch.setattr(os, "statvfs", fake)
    (tmp_path / "noexec").mkdir()
    environ = {"TCCACHE_HOME": str(tmp_path / "noexec" / "t"), "HOME": str(tmp_path)}
    live = live_directory(ENVIRONMENT, environ)
    assert live.chosen_by == "HOME"
    assert "noexec" in live.notes[0]
    assert list((tmp_path / "noexec").iterdir()) == []
    users = live_directory(ENVIRONMENT, {INDUCTOR: str(tmp_path / "noexec" / "mine")})
    assert users.chosen_by == "the temporary directory"
    assert "noexec" in users.notes[0]


def test_a_real_noexec_mount_is_passed_over(tmp_path: Path) -> None:
    """As above, with the kernel's own answer."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,noexec", "tmpfs", str(disk)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        live = live_directory(ENVIRONMENT, {"TCCACHE_HOME": str(disk), "HOME": str(tmp_path)})
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert live.chosen_by == "HOME"
    assert "noexec" in live.notes[0]


def test_without_any_place_the_error_says_all_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every candidate and what is wrong with it, and what to set."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(TccacheError) as error:
        live_directory(ENVIRONMENT, {"HOME": str(tmp_path / "file")})
    text = str(error.value)
    assert text.startswith(f"no usable live directory: {tmp_path}/file/.cache/tccache was passed")
    assert f"{tmp_path}/file/tccache-{os.getuid()} was passed over" in text
    assert "set TCCACHE_HOME to a directory" in text


def test_without_even_a_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only container without a writable mount: still one sentence."""

    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with pytest.raises(TccacheError, match="there is no home and no temporary directory"):
        live_directory(ENVIRONMENT, {})


# The temporary directory, where everybody writes.


def test_a_temporary_home_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could plant code in it: a fresh folder is used, the same for this process."""
    temporary_home().mkdir()
    home, uid = temporary_home(), os.getuid()
    lstat = os.lstat

    def anothers(path: str | Path) -> os.stat_result:
        status = lstat(path)
        if Path(path) != home:
            return status
        return os.stat_result((*status[:4], uid + 1, *status[5:]))

    monkeypatch.setattr(os, "lstat", anothers)
    live = live_directory(ENVIRONMENT, {})
    assert home not in live.root.parents
    assert live_directory(ENVIRONMENT, {}).root == live.root
    assert "belongs to another user" in live.notes[0]
    assert list(home.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_temporary_home_that_root_does_not_own_is_not_used() -> None:
    """The same with a real owner: root could write there, and does not."""
    temporary_home().mkdir()
    os.chown(temporary_home(), 12345, 12345)
    live = live_directory(ENVIRONMENT, {})
    assert temporary_home() not in live.root.parents
    assert list(temporary_home().iterdir()) == []


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    """Somebody guessed the name and points it at a folder of theirs, or of this user's."""
    (tmp_path / "theirs").mkdir()
    temporary_home().symlink_to(tmp_path / "theirs")
    live = live_directory(ENVIRONMENT, {})
    assert live.root.resolve().parents[1] != tmp_path / "theirs"
    assert "it is a link, and everybody can make one there" in live.notes[0]
    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_temporary_home_that_was_opened_is_closed_again() -> None:
    """Its owner is this user, so nobody else may write there."""
    temporary_home().mkdir()
    temporary_home().chmod(0o777)
    live = live_directory(ENVIRONMENT, {})
    assert live.root == temporary_home() / BELOW
    assert stat.S_IMODE(os.stat(temporary_home()).st_mode) == 0o755
    assert stat.S_IMODE(os.stat(live.root).st_mode) == 0o700
    (note,) = live.notes
    assert note == (
        f"{temporary_home()} was closed to others: every user of this machine can write to it"
    )


# Users that are nobody in particular.


def environ_of(folder: Path, **values: str) -> dict[str, str]:
    return {"PATH": os.defpath, "TMPDIR": str(folder), **values}


def test_a_user_without_a_passwd_entry_whose_home_is_the_root(
    open_folder: Path, unprivileged: Callable[..., Any]
) -> None:
    """A container with a random UID: HOME=/ cannot be written, so the temporary directory is."""
    environ = environ_of(open_folder, HOME="/")
    root, chosen_by, notes = unprivileged(SHOW, ENVIRONMENT, environ=environ)
    assert Path(root).parents[2] == open_folder
    assert chosen_by == "the temporary directory"
    if os.getuid() == 0:
        assert notes == ["/.cache/tccache was passed over as live directory: Permission denied"]
        assert Path(root).parents[1] == open_folder / "tccache-12345"


def test_a_user_without_a_home(open_folder: Path, unprivileged: Callable[..., Any]) -> None:
    """Neither HOME nor USER nor a passwd entry: nothing of it is asked for."""
    root, chosen_by, notes = unprivileged(SHOW, ENVIRONMENT, environ=environ_of(open_folder))
    assert Path(root).is_relative_to(open_folder)
    assert (chosen_by, notes) == ("the temporary directory", [])


def test_a_home_of_somebody_else(open_folder: Path, unprivileged: Callable[..., Any]) -> None:
    """HOME was inherited through `sudo` or `docker --user`: read-only, so it is passed over."""
    (open_folder / "home").mkdir(mode=0o555)
    environ = environ_of(open_folder, HOME=str(open_folder / "home"))
    root, _, notes = unprivileged(SHOW, ENVIRONMENT, environ=environ)
    assert Path(root).parents[2] == open_folder
    assert "Permission denied" in notes[0]


def test_a_directory_that_another_user_seeded(
    open_folder: Path, unprivileged: Callable[..., Any]
) -> None:
    """An init container's user filled and closed it: another user is told, and goes elsewhere."""
    live = live_directory(ENVIRONMENT, {"TCCACHE_HOME": str(open_folder)})
    assert live.root.is_relative_to(open_folder)
    if os.getuid() == 0:
        environ = environ_of(open_folder, TCCACHE_HOME=str(open_folder))
        root, _, notes = unprivileged(SHOW, ENVIRONMENT, environ=environ)
        assert Path(root) != live.root
        assert "Permission denied" in notes[0]


def test_nowhere_to_write(open_folder: Path, unprivileged: Callable[..., Any]) -> None:
    """Everything is read-only for this user: one sentence that names each place."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o555)
    source = "    tempfile.tempdir = sys.argv[2]" + SHOW
    environ = environ_of(closed, HOME=str(closed))
    text = unprivileged(source, ENVIRONMENT, closed, environ=environ)
    assert text.startswith("no usable live directory: ")
    assert text.count("Permission denied") == 2


# Child processes.


@pytest.mark.parametrize("own", [{}, {TRITON: "kernels"}, {INDUCTOR: "mine"}])
def test_a_child_finds_its_parents_directory(tmp_path: Path, own: dict[str, str]) -> None:
    """By the variables that it inherits: the same places, so the same ledger and lock.

    Also where the child's environment is another one: the directory in effect is what counts.
    """
    environ = {"HOME": str(tmp_path), **{name: str(tmp_path / path) for name, path in own.items()}}
    parent = live_directory(ENVIRONMENT, environ)
    for environment in (ENVIRONMENT, OTHER_ENVIRONMENT):
        child = live_directory(environment, inherited(parent, environ))
        assert child.places == parent.places
        assert child.places.records == parent.places.records


def test_a_real_child_waits_for_its_parents_lock(tmp_path: Path) -> None:
    """A worker that is spawned before anything was seeded meets the lock of who seeds."""
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    parent = live_directory(ENVIRONMENT, environ)
    source = """
import json, os, sys
from cachesvc.core.errors import BusyError
from cachesvc.local.live import live_directory
from cachesvc.local.seed import Seeder
places = live_directory(sys.argv[1], os.environ).places
try:
    Seeder(places, patience_s=0).__enter__()
    answer = "free"
except BusyError:
    answer = "busy"
print(json.dumps([answer, str(places.records)]))
"""

    def child() -> Any:
        result = subprocess.run(
            [sys.executable, "-c", source, ENVIRONMENT],
            env={**os.environ, **inherited(parent, environ)},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(result.stdout)

    with Seeder(parent.places):
        assert child() == ["busy", str(parent.places.records)]
    assert child() == ["free", str(parent.places.records)]


def test_a_directory_that_only_looks_like_ours_is_the_users(tmp_path: Path) -> None:
    """The user's folder is called `inductor`, too; without our records above, it is theirs."""
    mine = tmp_path / "cache" / "inductor"
    live = live_directory(ENVIRONMENT, {INDUCTOR: str(mine)})
    assert live.root == mine
    assert live.places.records == mine / ".tccache"
    assert live.places != under(mine.parent)


def test_seeding_the_users_directory_does_not_turn_it_into_ours(tmp_path: Path) -> None:
    """The records of the first start do not make the second one find another place."""
    environ = {INDUCTOR: str(tmp_path / "inductor")}
    first = live_directory(ENVIRONMENT, environ)
    with Seeder(first.places):
        pass
    assert live_directory(ENVIRONMENT, environ).places == first.places
    with Seeder(first.places), pytest.raises(BusyError):
        Seeder(live_directory(ENVIRONMENT, environ).places, patience_s=0).__enter__()
