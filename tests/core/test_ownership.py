"""Which directories only this user can write, so that they need no word of trust."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachesvc.core import ownership
from cachesvc.core.ownership import openings, others_may_write

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def _known_anew() -> Iterator[None]:
    """What was found out about a user's group is not remembered beyond a test."""
    ownership._is_private_group.cache_clear()
    yield
    ownership._is_private_group.cache_clear()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir(mode=0o700)
    return path


def test_a_private_directory(own: Path) -> None:
    """It is this user's and nobody else can write: no word is needed."""
    assert not others_may_write(str(own))


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o700])
def test_reading_is_not_writing(own: Path, mode: int) -> None:
    """What others can read is still only this user's."""
    own.chmod(mode)
    assert not others_may_write(str(own))


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702, 0o1777])
def test_a_directory_that_others_write(own: Path, mode: int) -> None:
    """A group counts as others, and a sticky bit does not keep them from adding objects."""
    own.chmod(mode)
    assert others_may_write(str(own))


def test_a_directory_of_another_user(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner can write it, whatever its mode."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert others_may_write(str(own))


@pytest.mark.parametrize(("mode", "others"), [(0o777, True), (0o775, True), (0o1777, False)])
def test_a_parent_that_others_write(own: Path, mode: int, others: bool) -> None:
    """They could exchange the store's directory, unless the parent is sticky as /tmp is."""
    own.parent.chmod(mode)
    assert others_may_write(str(own)) is others


@pytest.mark.parametrize(("mode", "others"), [(0o700, False), (0o777, True), (0o1777, False)])
def test_a_missing_directory_is_judged_by_its_way(own: Path, mode: int, others: bool) -> None:
    """Whoever could make it, or what leads to it, counts."""
    own.chmod(mode)
    assert others_may_write(str(own / "not" / "there")) is others


def test_a_working_directory_that_is_gone(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for only where a path is relative to it."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert not others_may_write(str(own))
    with pytest.raises(FileNotFoundError):
        others_may_write("store")
    monkeypatch.chdir(tmp_path)
    assert not others_may_write("store")


def test_a_link_is_followed(own: Path, tmp_path: Path) -> None:
    """A link of one's own is as private as what it leads to, relative or not."""
    (tmp_path / "link").symlink_to(own)
    (tmp_path / "relative").symlink_to("store/../store")
    assert not others_may_write(str(tmp_path / "link"))
    assert not others_may_write(str(tmp_path / "relative"))
    own.chmod(0o777)
    assert others_may_write(str(tmp_path / "link"))
    assert others_may_write(str(tmp_path / "relative"))


def test_a_link_through_a_directory_that_others_write(own: Path, tmp_path: Path) -> None:
    """They could make the second link lead elsewhere."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "second").symlink_to(own)
    (tmp_path / "first").symlink_to(shared / "second")
    assert not others_may_write(str(tmp_path / "first"))
    shared.chmod(0o777)
    assert others_may_write(str(tmp_path / "first"))


@as_root
def test_a_link_of_another_user(own: Path, tmp_path: Path) -> None:
    """Its owner can make it lead elsewhere."""
    (tmp_path / "link").symlink_to(own)
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    assert others_may_write(str(tmp_path / "link"))


@as_root
def test_a_parent_of_another_user(own: Path, tmp_path: Path) -> None:
    """Its owner can exchange what is in it."""
    os.chown(tmp_path, NOBODY, NOBODY)
    assert others_may_write(str(own))


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A path that leads nowhere is judged all the same."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert not others_may_write(str(tmp_path / "a"))


# What is told of each.


def test_each_opening_is_told(own: Path) -> None:
    """From the root on, with its reason, and whether this user can close it."""
    own.parent.chmod(0o777)
    own.chmod(0o770)
    first, second = openings(str(own))
    assert (first.path, first.is_ours) == (str(own.parent), True)
    assert first.reason == "every user of this machine can write to it"
    assert second.path == str(own)
    assert second.reason == f"its group (GID {own.stat().st_gid}) can write to it"


@as_root
def test_an_opening_of_another_user_is_not_ours(own: Path) -> None:
    """Only its owner can close it."""
    os.chown(own, NOBODY, NOBODY)
    (found,) = openings(str(own))
    assert (found.reason, found.is_ours) == ("it belongs to another user (UID 65534)", False)


def test_the_system_itself_is_closed() -> None:
    """Where programs are installed, and in the directory for temporary files."""
    assert not any(openings("/usr/lib"))
    assert not any(openings("/tmp/not-there/yet"))


# A user's own group.


@pytest.fixture
def of_group(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that its group can write, for a user alice whose group is alice."""
    own.chmod(0o770)
    members: list[str] = []
    user, group = own.stat().st_uid or 4711, own.stat().st_gid
    if own.stat().st_uid == 0:
        os.chown(own, user, group)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    alice = SimpleNamespace(pw_name="alice", pw_gid=group)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: alice)
    own_group = SimpleNamespace(gr_name="alice", gr_mem=members)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: own_group)
    return own


def test_a_private_group_is_no_other(of_group: Path) -> None:
    """With a umask of 002, as systems with such groups have it, every directory is its group's."""
    assert not others_may_write(str(of_group))


@pytest.mark.parametrize("what", ["name", "member", "primary"])
def test_a_group_that_is_not_private(
    of_group: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another name, another member, or not the user's first group."""
    group = SimpleNamespace(gr_name="alice", gr_mem=["alice"])
    if what == "name":
        group.gr_name = "staff"
    elif what == "member":
        group.gr_mem.append("bob")
    else:
        user = SimpleNamespace(pw_name="alice", pw_gid=of_group.stat().st_gid + 1)
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: group)
    assert others_may_write(str(of_group))


def test_a_user_without_a_name_has_no_private_group(
    of_group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers are given random users: their group is everybody's."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert others_may_write(str(of_group))


@pytest.mark.parametrize(
    ("answer", "others"), [(None, True), (errno.ENODATA, False), (errno.EIO, True)]
)
def test_an_acl_shows_in_the_groups_bits(
    of_group: Path, answer: int | None, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may let any user write, so the private group is not all that they stand for then."""

    def acl(path: str, name: str) -> bytes:
        if answer is not None:
            raise OSError(answer, os.strerror(answer))
        return b"acl"

    monkeypatch.setattr(os, "getxattr", acl)
    assert others_may_write(str(of_group)) is others


# User namespaces.

IN_NAMESPACE = """
import ctypes, os
from cachesvc.core.ownership import openings
libc = ctypes.CDLL(None)
os.setgid(12345)
os.setuid(12345)
libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else /proc/self is root's
if libc.unshare(0x10000000):  # CLONE_NEWUSER
    raise SystemExit("no namespaces")
with open("/proc/self/uid_map", "w") as file:
    file.write("0 12345 1")
print(os.geteuid(), os.stat("/").st_uid, [item.path for item in openings("/usr/lib")])
"""


@as_root
def test_a_user_namespace_does_not_show_root() -> None:
    """In a container without privileges `/` seems to be nobody's: it is taken to be root's."""
    command = [sys.executable, "-c", IN_NAMESPACE]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if "no namespaces" in result.stderr:
        pytest.skip("this machine has no user namespaces for everybody")
    assert result.stdout == "0 65534 []\n"


@as_root
def test_outside_of_a_namespace_nobody_is_a_user(own: Path) -> None:
    """Here every owner is known, and UID 65534 is one like any other."""
    os.chown(own, NOBODY, NOBODY)
    assert ownership._unmapped() is None
    assert others_may_write(str(own))
