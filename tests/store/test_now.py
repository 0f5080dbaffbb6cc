"""A store tells the time of its own clock, by which its objects are dated."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.errors import StoreError
from cachesvc.store.contract import Store
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.faulty import Faulty
from cachesvc.store.read_only import ReadOnly
from cachesvc.store.retrying import Retrying
from cachesvc.store.s3 import S3Store
from cachesvc.store.wrapper import Wrapper

Place = Callable[[], Store]
COARSE = timedelta(seconds=1)
LONG_AGO = datetime(2001, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
LISTING = (
    b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
)


@pytest.mark.parametrize("kind", ["memory", "directory", "s3_in_process", "s3_server"])
def test_objects_are_dated_by_the_clock_that_is_told(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """What is written before it is not younger, what is written after it is not older."""
    store: Store = request.getfixturevalue(kind)()
    store.put("a", b"")
    now = store.now()
    store.put("b", b"")
    first, second = store.list()
    assert first.modified - COARSE <= now <= second.modified + COARSE
    assert now.utcoffset() == timedelta(0)


Dated = Callable[[str], None]


@pytest.fixture
def dated(monkeypatch: pytest.MonkeyPatch) -> Dated:
    """Has the servers of this machine date their answers so."""

    def date(text: str) -> None:
        monkeypatch.setattr(BaseHTTPRequestHandler, "date_time_string", lambda _: text)

    return date


def test_a_service_is_asked(serve: Any, answer: Any, dated: Dated) -> None:
    """An S3 service's own date counts, not this host's, and costs one request."""
    dated("Sat, 03 Feb 2001 04:05:06 GMT")
    script = serve(answer(body=LISTING))
    assert S3Store(f"s3://bucket/p?endpoint={script.url}").now() == LONG_AGO
    assert len(script.requests) == 1


@pytest.mark.parametrize("date", ["", "yesterday"])
def test_a_service_that_does_not_tell_the_time(
    serve: Any, answer: Any, dated: Dated, date: str
) -> None:
    """Nothing is taken in place of it: by a clock that is wrong, what is new looks old."""
    dated(date)
    script = serve(answer(body=LISTING))
    with pytest.raises(StoreError, match="does not tell the time"):
        S3Store(f"s3://bucket/p?endpoint={script.url}").now()


def test_a_file_system_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory's time is that of its files, and nothing stays behind."""

    class Old(tuple):  # type: ignore[type-arg]
        st_mtime = LONG_AGO.timestamp()

    store = DirectoryStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", lambda _: Old())
        assert store.now() == LONG_AGO
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """This host's clock has to do where nothing can be written."""
    before = datetime.now(timezone.utc)
    assert before <= DirectoryStore(tmp_path / "missing").now() <= datetime.now(timezone.utc)
    assert not (tmp_path / "missing").exists()


class Sundial(Wrapper):
    """A store with a clock of its own."""

    def _now(self) -> datetime:
        return LONG_AGO


def test_wrappers_pass_it_on(memory: Place) -> None:
    """The clock is that of the store inside, also where nothing may be written."""
    store = Sundial(memory())
    for wrapped in (Wrapper(store), ReadOnly(store), Retrying(store), Faulty(store)):
        assert wrapped.now() == LONG_AGO


def test_a_clock_that_does_not_answer_is_asked_again(memory: Place) -> None:
    """Trouble of the wire is retried, as for every verb."""

    class Shy(Sundial):
        asked = 0

        def _now(self) -> datetime:
            self.asked += 1
            if self.asked < 3:
                raise StoreError("no answer")
            return super()._now()

    assert Retrying(Shy(memory()), sleep=lambda _: None).now() == LONG_AGO
