"""Errors of the disk at every call: one sentence, the store and the live directory whole."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

Play = Callable[..., dict[str, int]]

FAILING = (errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EIO)
# Each scene with the least number of calls that fail in it.
SCENES = {
    "push": 75,
    "push-more": 130,
    "pull": 200,
    "pull-more": 160,
    "set-aside": 100,
    "restore": 65,
    "remove": 20,
    "start": 200,
    "run": 380,
    "build": 220,
    "collect": 200,
    "discard": 60,
    "key": 25,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scene", SCENES)
def test_every_call_fails(play: Play, scene: str) -> None:
    """The disk is full, or read-only, or no file can be opened, from each call on; or just that one
    meets a bad sector.

    What is raised is this library's own error; a start and a run raise nothing at all. A full disk
    lets go of what was half-written, and a rerun comes to the same end.
    """
    assert play(scene, codes=FAILING)[scene] >= SCENES[scene]


@pytest.mark.slow
def test_a_quota_that_is_used_up(play: Play) -> None:
    """As a disk that is full, at each fifth call."""
    runs = play("push", "pull", "set-aside", "run", codes=(errno.EDQUOT,), every=5)
    assert all(number > 2 for number in runs.values())


def test_some_calls_fail(play: Play) -> None:
    """As above, each twenty-ninth."""
    runs = play("pull", "start", codes=(errno.ENOSPC, errno.EIO), every=29)
    assert all(number > 4 for number in runs.values())
