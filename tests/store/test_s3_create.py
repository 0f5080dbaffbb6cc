"""S3: an object is written where there is none, and one that is there is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from cachesvc.core.errors import AccessDenied, StoreError
from cachesvc.store.location import mark_format
from cachesvc.store.s3 import S3Store, Tuning

Serve = Callable[..., Any]
MIB = 1 << 20
BEGUN = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
DONE = b"<CompleteMultipartUploadResult><Key>pack</Key></CompleteMultipartUploadResult>"
IN_PARTS = Tuning(threshold=10, part=5, at_once=1)
TEN = b"0123456789"
CONDITION = "If-None-Match"


def trouble(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>said by the test</Message></Error>".encode()


def at(url: str, tuning: Tuning | None = None) -> S3Store:
    return S3Store(f"s3://bucket?endpoint={url}", tuning=tuning)


def asked(script: Any) -> list[tuple[str, str | None]]:
    """The method of each request, and its condition."""
    return [(method, headers.get(CONDITION)) for method, headers in script.requests]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been waited."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append)
    monkeypatch.setattr("cachesvc.store.s3_conflict.time", clock)
    monkeypatch.setattr("botocore.endpoint.time", clock)
    return waited


@pytest.mark.parametrize("size", [3, 11 * MIB], ids=["small", "large"])
def test_an_object_that_is_there_is_left(
    s3_server: Callable[[], S3Store], s3_client: Any, s3_bucket: str, size: int
) -> None:
    """A second write is no error and changes nothing, and of its parts none is left."""
    s3_server().put("pack", b"1" * size)
    s3_server().put("pack", b"2" * size)
    assert s3_server().get("pack", limit=size) == b"1" * size
    assert "Uploads" not in s3_client.list_multipart_uploads(Bucket=s3_bucket)


@pytest.mark.parametrize("size", [3, 9 * MIB], ids=["small", "large"])
def test_one_of_many_writers_wins(
    s3_server: Callable[[], S3Store], s3_client: Any, s3_bucket: str, size: int
) -> None:
    """Eight at once: each returns, and the object is whole and that of one of them for good."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: s3_server().put("pack", bytes([n]) * size), range(8)))
    first = s3_server().get("pack", limit=size)
    assert first is not None
    assert set(first) < set(range(8))
    assert len(set(first)) == 1
    s3_server().put("pack", b"x" * size)
    assert s3_server().get("pack", limit=size) == first
    assert "Uploads" not in s3_client.list_multipart_uploads(Bucket=s3_bucket)


def test_every_write_carries_the_condition(serve: Serve, answer: Any) -> None:
    """On the request that makes the object, and no other; without a request more."""
    script = serve(answer(200))
    at(script.url).put("a", TEN)
    assert asked(script) == [("PUT", "*")]
    part = answer(200, b"", {"ETag": '"e"'})
    script = serve(answer(200, BEGUN), part, part, answer(200, DONE))
    at(script.url, IN_PARTS).put("pack", TEN)
    assert asked(script) == [("POST", None), ("PUT", None), ("PUT", None), ("POST", "*")]


@pytest.mark.parametrize("status", [412, 304])
def test_what_was_written_already(serve: Serve, answer: Any, status: int) -> None:
    """It is as good as written now, and parts that are not needed are thrown away."""
    there = answer(status, trouble("PreconditionFailed") if status == 412 else b"")
    script = serve(there)
    at(script.url).put("a", TEN)
    assert asked(script) == [("PUT", "*")]
    part = answer(200, b"", {"ETag": '"e"'})
    script = serve(answer(200, BEGUN), part, part, there, answer(204))
    at(script.url, IN_PARTS).put("pack", TEN)
    assert asked(script)[3:] == [("POST", "*"), ("DELETE", None)]


@pytest.mark.usefixtures("pauses")
def test_an_answer_that_was_lost(serve: Serve, answer: Any) -> None:
    """The write is sent again, and meets its own first success."""
    script = serve(answer(503, trouble("SlowDown")), answer(412, trouble("PreconditionFailed")))
    at(script.url).put("a", TEN)
    assert asked(script) == [("PUT", "*")] * 2


@pytest.mark.parametrize(
    ("status", "code"),
    [(501, "NotImplemented"), (400, "InvalidArgument"), (400, "InvalidRequest"), (501, None)],
)
def test_a_service_that_does_not_know_the_condition(
    serve: Serve, answer: Any, status: int, code: str | None
) -> None:
    """It is asked without, once more for each store and never again."""
    refused = answer(status, trouble(code) if code else b"")
    script = serve(refused, answer(200))
    store = at(script.url)
    for _ in range(2):
        store.put("a", TEN)
    assert asked(script) == [("PUT", "*"), ("PUT", None), ("PUT", None)]
    part = answer(200, b"", {"ETag": '"e"'})
    script = serve(answer(200, BEGUN), part, part, refused, answer(200, DONE))
    at(script.url, IN_PARTS).put("pack", TEN)
    assert asked(script)[3:] == [("POST", "*"), ("POST", None)]


def test_what_is_refused_for_another_reason(serve: Serve, answer: Any) -> None:
    """The error is the service's, and the next write carries the condition again."""
    script = serve(answer(400, trouble("InvalidArgument")))
    store = at(script.url)
    for _ in range(2):
        with pytest.raises(StoreError, match="InvalidArgument"):
            store.put("a", TEN)
    assert asked(script) == [("PUT", "*"), ("PUT", None)] * 2


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (400, "ExpiredToken")])
def test_a_denied_write_is_not_sent_without(
    serve: Serve, answer: Any, status: int, code: str
) -> None:
    """A policy that asks for the condition is not tried without it."""
    script = serve(answer(status, trouble(code)))
    with pytest.raises(AccessDenied):
        at(script.url).put("a", TEN)
    assert asked(script) == [("PUT", "*")]


def test_writers_that_meet(serve: Serve, answer: Any, pauses: list[float]) -> None:
    """After a conflict a small object is sent again; one in parts is begun again, as the service
    has thrown the first upload away."""
    conflict = answer(409, trouble("ConditionalRequestConflict"))
    script = serve(conflict, answer(200))
    at(script.url).put("a", TEN)
    assert asked(script) == [("PUT", "*")] * 2
    part = answer(200, b"", {"ETag": '"e"'})
    gone = answer(404, trouble("NoSuchUpload"))
    upload = [answer(200, BEGUN), part, part]
    script = serve(*upload, conflict, gone, *upload, answer(200, DONE))
    at(script.url, IN_PARTS).put("pack", TEN)
    assert [method for method, _ in asked(script)] == [
        *("POST", "PUT", "PUT", "POST", "DELETE"),
        *("POST", "PUT", "PUT", "POST"),
    ]
    assert pauses == [0.1, 0.1]


def test_an_upload_whose_end_was_not_heard(serve: Serve, answer: Any, pauses: list[float]) -> None:
    """The request that completes it is sent again and finds no upload: it is begun again, and the
    object is there."""
    part = answer(200, b"", {"ETag": '"e"'})
    gone = answer(404, trouble("NoSuchUpload"))
    upload = [answer(200, BEGUN), part, part]
    lost = answer(503, trouble("SlowDown"))
    there = answer(412, trouble("PreconditionFailed"))
    script = serve(*upload, lost, gone, gone, *upload, there, answer(204))
    at(script.url, IN_PARTS).put("pack", TEN)
    assert [method for method, _ in asked(script)] == [
        *("POST", "PUT", "PUT", "POST", "POST", "DELETE"),
        *("POST", "PUT", "PUT", "POST", "DELETE"),
    ]
    assert pauses[-1] == 0.1


def test_writers_that_meet_every_time(serve: Serve, answer: Any, pauses: list[float]) -> None:
    """It ends, as StoreError."""
    script = serve(answer(409, trouble("ConditionalRequestConflict")))
    with pytest.raises(StoreError, match=r"ConditionalRequestConflict.*try again"):
        at(script.url).put("a", TEN)
    assert len(script.requests) == 4
    assert pauses == [0.1, 0.4, 1.6]


def test_two_first_pushers_mark_one_store(serve: Serve, answer: Any) -> None:
    """Who finds no mark and comes second to write it sees that it is its own, and goes on."""
    script = serve(
        answer(404, trouble("NoSuchKey")),
        answer(412, trouble("PreconditionFailed")),
        answer(200, b'{"format":1}'),
    )
    mark_format(at(script.url))
    assert asked(script) == [("GET", None), ("PUT", "*"), ("GET", None)]
