"""A disk that never answers, and threads that cannot be started: nobody waits for ever."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import cachesvc
from cachesvc.local.live import live_directory
from cachesvc.start.bundles import select
from cachesvc.start.deadline import Deadline, DeadlinePassed
from cachesvc.start.settings import open_repository
from cachesvc.start.transfer import holdings, seed

Play = Callable[..., dict[str, int]]


def test_a_flush_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is stuck takes no longer than the deadline: nothing was committed when the caller
    goes on, and nothing is when the disk answers at last."""
    (tmp_path / "goods/ab").mkdir(parents=True)
    (tmp_path / "goods/ab/cone.py").write_text("code")
    cachesvc.push("gpt", store=tmp_path / "store", inductor_dir=tmp_path / "goods")
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    repository = open_repository(tmp_path / "store", None)
    found = holdings(repository, select(repository, "gpt").bundles, foreign=False)
    places = live_directory(found.readings[0].address.environment, os.environ).places
    stuck, answers = threading.Event(), threading.Event()
    fdatasync = os.fdatasync

    def hang(number: int) -> None:
        stuck.set()
        answers.wait(60)
        fdatasync(number)

    monkeypatch.setattr(os, "fdatasync", hang)
    deadline, told = Deadline(60), []

    def work() -> None:
        try:
            seed(repository, found, places, deadline=deadline)
        except DeadlinePassed as error:
            told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert stuck.wait(60)
    assert deadline.close()
    answers.set()
    thread.join(60)
    assert len(told) == 1
    assert not list(places.root.rglob("*.py"))
    assert seed(repository, found, places).seeded == 1


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["push-more", "pull", "start", "run", "build"])
def test_no_thread_can_be_started(play: Play, scene: str) -> None:
    """From each one on, and just each one: what has to be done is done without, or one sentence
    says it; a program is run all the same."""
    assert play(scene, codes=(errno.EAGAIN, errno.ENOMEM))[scene] >= 4


def test_no_thread_can_be_started_for_some(play: Play) -> None:
    """As above, for a start."""
    assert play("start", codes=(errno.EAGAIN,))["start"] >= 3
