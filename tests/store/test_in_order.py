"""Several jobs at once, results in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from cachesvc.store.in_order import beside, in_order

Job = Callable[[], int]


def test_results_come_in_the_order_of_the_jobs() -> None:
    """Also if a later job is done first."""
    second_done = threading.Event()

    def first() -> int:
        assert second_done.wait(10)
        return 1

    def second() -> int:
        second_done.set()
        return 2

    assert list(in_order([first, second], 2)) == [1, 2]


def test_no_more_jobs_run_than_allowed() -> None:
    """Memory is bounded: a job begins only when an earlier result was taken."""
    begun = []

    def jobs() -> Iterator[Job]:
        for number in range(10):
            begun.append(number)
            yield lambda: 0

    results = in_order(jobs(), 3)
    for taken in range(1, 8):
        next(results)
        assert len(begun) <= 3 + taken
    results.close()  # type: ignore[attr-defined]


def test_an_error_comes_in_its_place_and_ends_it() -> None:
    """Earlier results come, running jobs are waited for, no further job begins."""
    ended: list[int] = []
    go_on = threading.Event()

    def job(number: int) -> int:
        if number == 1:
            raise ValueError("job 1")
        assert number == 0 or go_on.wait(10)
        ended.append(number)
        return number

    results = in_order([partial(job, number) for number in range(5)], 2)
    assert next(results) == 0
    go_on.set()
    with pytest.raises(ValueError, match="job 1"):
        list(results)
    assert ended == [0, 2]


def test_who_wants_no_more_does_not_wait() -> None:
    """As at an interrupt: a job may hang."""
    go = threading.Event()
    results = in_order([lambda: 1, lambda: int(go.wait(60))], 2)
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]
    assert not go.is_set()
    go.set()


def test_an_interrupt_in_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised at once, and no job is waited for after it."""
    go, waits = threading.Event(), []

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        waits.append(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", join)
        with pytest.raises(KeyboardInterrupt):
            list(in_order([lambda: int(go.wait(60)), lambda: int(go.wait(60))], 2))
    assert len(waits) == 1
    go.set()


def test_a_call_beside() -> None:
    """It is waited for as long as told; what it raises is nobody's."""
    go, ended = threading.Event(), threading.Event()

    def hang() -> None:
        go.wait(60)
        ended.set()

    beside(hang, 0.001)
    assert not ended.is_set()
    go.set()
    assert ended.wait(60)
    beside(lambda: 1 // 0, 60)


def test_threads_do_not_hold_up_the_end_of_the_process() -> None:
    """They are daemons."""
    assert list(in_order([lambda: threading.current_thread().daemon], 1)) == [True]


def test_nothing_to_do() -> None:
    """No job, no result, no thread."""
    assert list(in_order([], 4)) == []


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of an interpreter of Python 3.12: the jobs are done right here."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert list(in_order([lambda: 1, lambda: 2, lambda: 3], 2)) == [1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        list(in_order([lambda: 1 // 0], 2))
