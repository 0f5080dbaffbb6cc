"""Answers that no S3 gives: something on the way makes them, and the error says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cachesvc.core.errors import StoreError
from cachesvc.store.contract import Store
from cachesvc.store.s3 import S3Store

Serve = Callable[..., Any]
VERBS: dict[str, Callable[[Store], Any]] = {
    "get": lambda store: store.get("a", limit=100),
    "list": lambda store: list(store.list()),
    "stat": lambda store: store.stat("a"),
}
MODIFIED = "2024-05-06T07:08:09.000Z"


def page(item: str, end: str = "<IsTruncated>false</IsTruncated>") -> bytes:
    listed = f"<Name>bucket</Name>{end}<Contents>{item}</Contents>"
    return f"<ListBucketResult>{listed}</ListBucketResult>".encode()


def item(key: str = "a", size: str = "1", modified: str = MODIFIED) -> str:
    fields = {"Key": key, "Size": size, "LastModified": modified}
    return "".join(f"<{name}>{text}</{name}>" for name, text in fields.items() if text)


CASES: dict[str, tuple[str, bytes, dict[str, str]]] = {
    "no key": ("list", page(item(key="")), {}),
    "no size": ("list", page(item(size="")), {}),
    "no time": ("list", page(item(modified="")), {}),
    "a size that is none": ("list", page(item(size="one")), {}),
    "a time that is none": ("list", page(item(modified="yesterday")), {}),
    "no next page": ("list", page(item(), "<IsTruncated>true</IsTruncated>"), {}),
    "the same page for ever": (
        "list",
        page(
            item(),
            "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
        ),
        {},
    ),
    "a length that is none": ("get", b"1", {"Content-Length": "one"}),
    "no length": ("get", b"1", {"Content-Length": "", "Connection": "close"}),
    "a length of HEAD that is none": ("stat", b"", {"Content-Length": "one"}),
    "no time of HEAD": ("stat", b"", {}),
    "a time of HEAD that is none": ("stat", b"", {"Last-Modified": "yesterday"}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_that_is_none(
    serve: Serve, answer: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is trouble with the store, which says what to look at: no fault of this library, and no
    empty result."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    verb, body, headers = CASES[name]
    script = serve(answer(200, body, headers))
    with pytest.raises(StoreError, match="check it") as caught:
        VERBS[verb](S3Store(f"s3://bucket?endpoint={script.url}"))
    assert script.url in str(caught.value)
