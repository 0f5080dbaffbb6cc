"""Which directories only this user can write, so that they need no word of trust."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachesvc.core.ownership import others_may_write
from cachesvc.store.directory import DirectoryStore

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir(mode=0o700)
    return path


def test_a_private_directory(own: Path) -> None:
    """It is this user's and nobody else can write: no word is needed."""
    assert not others_may_write(str(own))
    assert not DirectoryStore(own).remote


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
    assert DirectoryStore(own).remote


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
