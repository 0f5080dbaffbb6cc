"""A job beside the caller that waits until things have settled."""

from __future__ import annotations

import threading

import pytest

from cachesvc.start.settling import Settling


def test_it_is_done_when_nothing_changes_any_more() -> None:
    """Once for many changes, and once more for one that comes while it is being done."""
    done = []
    begun, go = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go.wait(60)
        done.append(1)

    settling = Settling(job, 0.01, "job")
    assert settling.wait(0)
    for _ in range(3):
        settling.touch()
    assert settling.is_waiting
    assert begun.wait(60)
    assert settling.is_busy
    settling.touch()
    go.set()
    assert settling.wait(60)
    assert len(done) == 2
    assert not settling.is_busy


def test_the_end_does_not_wait_for_things_to_settle() -> None:
    """What changed is done at once, and nothing afterwards."""
    done = []
    settling = Settling(lambda: done.append(1), 3600, "job")
    settling.touch()
    assert not settling.wait(0.001)
    assert done == []
    assert settling.finish(60)
    assert done == [1]
    settling.touch()
    assert not settling.is_waiting
    assert settling.finish(60)
    assert done == [1]


def test_the_end_does_not_wait_for_ever() -> None:
    """A job that hangs holds nobody up for longer than asked."""
    go = threading.Event()
    settling = Settling(lambda: bool(go.wait(60)), 0, "job")
    settling.touch()
    assert not settling.finish(0.01)
    go.set()
    assert settling.wait(60)


def test_without_a_change_there_is_no_thread() -> None:
    """Nothing is begun that nobody needs."""
    before = threading.active_count()
    settling = Settling(list, 0, "job")
    assert settling.finish(60)
    assert threading.active_count() == before


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, nobody waits for what nobody does, and the next touch tries again."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = []
    settling = Settling(lambda: done.append(1), 3600, "job")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            settling.touch()
    assert settling.wait(0)
    settling.touch()
    assert settling.finish(60)
    assert done == [1]
