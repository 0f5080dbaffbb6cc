"""The deadline of a start: the caller goes on, and nothing enters the live directory after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from cachesvc.core.errors import StoreError, TccacheError
from cachesvc.start.deadline import Deadline, DeadlinePassed, within
from cachesvc.start.work import Work

T = TypeVar("T")


def test_without_a_limit_the_work_runs_right_here() -> None:
    """In the caller's own thread."""
    assert within(None, lambda _: threading.current_thread()) is threading.current_thread()


def test_work_in_time() -> None:
    """Its result is the caller's, and so is what it raises."""
    assert within(60, lambda _: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, lambda _: 1 // 0)


def test_work_that_takes_too_long_is_left_behind() -> None:
    """The caller goes on with the reason; the work learns of it at its next step, and cannot
    commit any more."""
    gone, told = threading.Event(), []
    ended = threading.Event()

    def work(deadline: Deadline) -> None:
        gone.wait(60)
        for step in (deadline.check, lambda: deadline.commit().__enter__()):
            try:
                step()
            except DeadlinePassed as error:
                told.append(str(error))
        ended.set()

    with pytest.raises(DeadlinePassed, match=r"the deadline of 0\.01 s passed"):
        within(0.01, work)
    gone.set()
    assert ended.wait(60)
    assert len(told) == 2


def test_a_commit_that_has_begun_is_waited_for() -> None:
    """However long it takes: half a commit would be worse than a late one."""
    begun, go = threading.Event(), threading.Event()
    waited: list[float] = []

    def wait_for(work: Work[str], seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) == 1:
            begun.wait(60)
            return False
        go.set()  # the caller has seen that the time is up, and waits all the same
        return work.wait(60)

    def work(deadline: Deadline) -> str:
        with deadline.commit():
            begun.set()
            go.wait(60)
            return "whole"

    assert within(0.01, work, wait_for=wait_for) == "whole"
    assert len(waited) == 2


def _interrupted(*_: object) -> bool:
    raise KeyboardInterrupt


def _begun_and_interrupted(function: Callable[[], T], name: str) -> Work[T]:
    Work(function, name)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "interrupted", [{"wait_for": _interrupted}, {"beside": _begun_and_interrupted}], ids=["a", "b"]
)
def test_an_interrupt_ends_the_time_too(interrupted: dict[str, Any]) -> None:
    """The caller who is interrupted while it waits, or as it begins to, goes on, so nothing is
    committed any more."""
    gone, told = threading.Event(), threading.Event()

    def work(deadline: Deadline) -> None:
        gone.wait(60)
        with pytest.raises(DeadlinePassed), deadline.commit():
            pass
        told.set()

    with pytest.raises(KeyboardInterrupt):
        within(60, work, **interrupted)
    gone.set()
    assert told.wait(60)


def test_closing_and_committing_exclude_each_other() -> None:
    """Whoever is first wins."""
    early, late = Deadline(1), Deadline(1)
    assert early.close()
    with pytest.raises(DeadlinePassed), early.commit():
        pass
    with late.commit():
        assert not late.close()
    late.check()


def test_what_is_held_is_let_go_at_the_end_of_the_time() -> None:
    """Once, while the work still hangs; not by work that has ended or has begun its commit."""
    let_go: list[str] = []
    held, go = threading.Event(), threading.Event()

    def work(deadline: Deadline) -> None:
        with deadline.holding(lambda: let_go.append("before")):
            pass
        with deadline.holding(lambda: let_go.append("now")):
            held.set()
            go.wait(60)

    def wait_for(_: Work[None], __: float) -> bool:
        assert held.wait(60)
        return False

    with pytest.raises(DeadlinePassed):
        within(0.01, work, wait_for=wait_for)
    assert set(let_go) == {"now"}
    go.set()
    committing = Deadline(1)
    with committing.holding(lambda: let_go.append("committing")), committing.commit():
        assert not committing.close()
    assert "committing" not in let_go


def test_nothing_is_held_after_the_end_of_the_time() -> None:
    """Work that comes to it later learns that nobody waits, and holds nothing on."""
    let_go: list[str] = []
    over = Deadline(1)
    assert over.close()
    with pytest.raises(DeadlinePassed), over.holding(lambda: let_go.append("late")):
        pytest.fail("it was entered")
    assert let_go == []


def test_the_caller_says_what_became_of_it() -> None:
    """A start goes on; other callers end, and are told so. It is trouble of the wire for both."""
    gone = threading.Event()
    with pytest.raises(StoreError, match=r"the deadline of 0\.01 s passed: it ended$"):
        within(0.01, lambda _: gone.wait(60), outcome="it ended")
    gone.set()


def test_more_time_than_a_clock_can_count() -> None:
    """A limit that stands for none is one all the same."""
    assert within(1e300, lambda _: 7) == 7


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as what it is, and no fault of this library: nothing is done, as it could hang."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(TccacheError, match=r"can't start new thread; see how many"):
        within(60, lambda _: pytest.fail("it was done"))
