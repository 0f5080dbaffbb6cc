"""SIGKILL at every change to the disk: a reader sees all or nothing, a rerun heals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Play = Callable[..., dict[str, int]]

# Each scene with the least number of kills that its changes come to.
SCENES = {
    "push": 29,
    "push-more": 45,
    "pull": 75,
    "pull-more": 50,
    "start": 75,
    "set-aside": 40,
    "restore": 25,
    "remove": 10,
    "run": 120,
    "build": 55,
    "collect": 60,
    "discard": 25,
    "key": 12,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_at_every_change(play: Play, scene: str) -> None:
    """Before each call that changes a file, half-way through each write, after the last one.

    What a reader finds then is whole, a rerun is kept waiting by no lock and comes to the same end,
    and a later run of another kind leaves no temporary of the dead one.
    """
    assert play(scene)[scene] >= SCENES[scene]


def test_a_kill_at_some_changes(play: Play) -> None:
    """As above, at each thirteenth of them."""
    runs = play("push-more", "pull", "pull-more", "set-aside", every=13)
    assert all(number >= SCENES[scene] // 13 for scene, number in runs.items())
