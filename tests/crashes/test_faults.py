"""Errors of the disk at every call: one sentence, the store and the live directory whole."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

Play = Callable[..., dict[str, int]]

FULL = (errno.ENOSPC, errno.EDQUOT)
FAILING = (*FULL, errno.EROFS, errno.EMFILE, errno.EIO)
# Each scene with the least number of calls that fail in it.
SCENES = {
    "push": 90,
    "push-more": 160,
    "pull": 250,
    "pull-more": 200,
    "set-aside": 120,
    "restore": 80,
    "remove": 25,
    "start": 250,
    "run": 400,
    "collect": 240,
    "discard": 70,
    "key": 30,
}


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_every_call_fails(play: Play, scene: str) -> None:
    """The disk is full, or read-only, or no file can be opened, from each call on; or just that one
    meets a bad sector.

    What is raised is this library's own error; a start and a run raise nothing at all. A full disk
    lets go of what was half-written, and a rerun comes to the same end.
    """
    assert play(scene, codes=FAILING)[scene] >= SCENES[scene]


def test_some_calls_fail(play: Play) -> None:
    """As above, each nineteenth."""
    runs = play("pull", "start", codes=(errno.ENOSPC, errno.EIO), every=19)
    assert all(number > 4 for number in runs.values())
