"""S3: what its answers and silences mean, and objects in parts."""

from __future__ import annotations

import base64
import io
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cachesvc.core.errors import AccessDenied, StoreError, UsageError
from cachesvc.store.contract import Store
from cachesvc.store.s3 import S3Store, Tuning
from cachesvc.store.streams import Source

Place = Callable[[], Store]
Serve = Callable[..., Any]
MIB = 1 << 20

VERBS: dict[str, Callable[[Store], Any]] = {
    "get": lambda store: store.get("a", limit=100),
    "put": lambda store: store.put("a", b"1"),
    "list": lambda store: list(store.list()),
    "stat": lambda store: store.stat("a"),
    "delete": lambda store: store.delete("a"),
}
verbs = pytest.mark.parametrize("verb", VERBS)


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt only, as the environment may ask of every AWS tool."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def trouble(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>said by the test</Message></Error>".encode()


def at(url: str, **tuning: int) -> S3Store:
    return S3Store(f"s3://bucket?endpoint={url}", tuning=Tuning(**tuning))


@pytest.mark.parametrize("verb", ["get", "put", "list", "delete"])
def test_a_bucket_that_does_not_exist(moto_server: str, verb: str) -> None:
    """It is not an empty store: the error names it and says what to do."""
    with pytest.raises(StoreError, match=r"s3://missing-bucket.*NoSuchBucket.*create the bucket"):
        VERBS[verb](S3Store(f"s3://missing-bucket/a?endpoint={moto_server}"))


@verbs
def test_no_credentials(moto_server: str, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """AccessDenied says where credentials could come from."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AccessDenied, match="AWS_PROFILE"):
        VERBS[verb](S3Store(f"s3://bucket?endpoint={moto_server}"))


def test_a_profile_that_does_not_exist() -> None:
    """It is a mistake in the URL, not trouble with the store."""
    with pytest.raises(UsageError, match="nobody"):
        S3Store("s3://bucket?profile=nobody").check()


@verbs
@pytest.mark.usefixtures("once")
def test_nobody_listens_at_the_endpoint(verb: str) -> None:
    """StoreError, and what to check."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(StoreError, match="check the network, the region and the endpoint"):
            VERBS[verb](at(f"http://127.0.0.1:{port}"))


@verbs
def test_a_right_that_is_lacking(serve: Serve, answer: Any, verb: str) -> None:
    """A 403 is never a missing object, and a read says that it could mean one."""
    script = serve(answer(403, trouble("AccessDenied")))
    with pytest.raises(AccessDenied, match="s3://bucket") as caught:
        VERBS[verb](at(script.url))
    assert ("s3:ListBucket" in str(caught.value)) is (verb in {"get", "stat"})
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("status", "code", "kind", "advice"),
    [
        (400, "ExpiredToken", AccessDenied, "renew"),
        (403, "InvalidAccessKeyId", AccessDenied, "check the access key"),
        (403, "SignatureDoesNotMatch", AccessDenied, "check the access key"),
        (403, "RequestTimeTooSkewed", AccessDenied, "clock"),
        (403, "SomethingNew", AccessDenied, "permission"),
        (403, "InvalidObjectState", StoreError, "archived"),
        (400, "AuthorizationHeaderMalformed", StoreError, "region="),
        (503, "SlowDown", StoreError, "throttling"),
        (500, "InternalError", StoreError, "try again"),
    ],
)
@pytest.mark.usefixtures("once")
def test_answers_that_are_errors(
    serve: Serve, answer: Any, *, status: int, code: str, kind: type, advice: str
) -> None:
    """Each says what to do about it, and whether trying again could help."""
    script = serve(answer(status, trouble(code)))
    with pytest.raises(StoreError, match=f"{code}.*{advice}") as caught:
        VERBS["put"](at(script.url))
    assert type(caught.value) is kind


@pytest.mark.parametrize(("setting", "requests"), [(None, 4), ("2", 2)])
def test_throttling_is_waited_out(
    serve: Serve, answer: Any, monkeypatch: pytest.MonkeyPatch, setting: str | None, requests: int
) -> None:
    """A busy service is asked again, as often as the AWS settings say or else four times."""
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    if setting:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", setting)
    script = serve(answer(503, trouble("SlowDown")))
    with pytest.raises(StoreError, match="throttling"):
        VERBS["put"](at(script.url))
    assert len(script.requests) == requests


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("page", [b"", b"<html>Log in</html>", b"<html><p>Log in", b"Log in"])
def test_something_else_answers(serve: Serve, answer: Any, page: bytes) -> None:
    """A login page of a proxy is not an empty store."""
    script = serve(answer(200, page))
    with pytest.raises(StoreError, match=r"does not answer as S3 does|500"):
        VERBS["list"](at(script.url))


def test_a_broken_read_goes_on(serve: Serve, answer: Any) -> None:
    """The rest of the same version is asked for, and the object comes whole."""
    version = {"ETag": '"v1"'}
    script = serve(
        answer(200, b"0123456789", version, cut=4),
        answer(206, b"456789", {**version, "Content-Range": "bytes 4-9/10"}, cut=3),
        answer(206, b"789", {**version, "Content-Range": "bytes 7-9/10"}),
    )
    assert at(script.url).get("a", limit=10) == b"0123456789"
    asked = [(headers.get("Range"), headers.get("If-Match")) for _, headers in script.requests]
    assert asked == [(None, None), ("bytes=4-9", '"v1"'), ("bytes=7-9", '"v1"')]


def test_a_read_that_breaks_every_time(serve: Serve, answer: Any) -> None:
    """It ends, as StoreError."""
    broken = answer(206, b"6789", {"Content-Range": "bytes 4-9/10"}, cut=0)
    script = serve(answer(200, b"0123456789", cut=4), broken)
    with pytest.raises(StoreError, match="the connection broke"):
        at(script.url).get("a", limit=10)
    assert len(script.requests) == 4


def test_an_object_that_changes_under_a_read(serve: Serve, answer: Any) -> None:
    """Its halves are never put together."""
    script = serve(
        answer(200, b"0123456789", {"ETag": '"v1"'}, cut=4),
        answer(412, trouble("PreconditionFailed")),
    )
    with pytest.raises(StoreError, match="changed while it was read"):
        at(script.url).get("a", limit=10)


def test_an_endpoint_that_ignores_ranges(serve: Serve, answer: Any) -> None:
    """Bytes from the start are not taken for those from the middle."""
    script = serve(answer(200, b"0123456789", cut=4), answer(200, b"0123456789"))
    with pytest.raises(StoreError, match="ranges"):
        at(script.url).get("a", limit=10)


def test_bytes_that_do_not_match_their_checksum(serve: Serve, answer: Any) -> None:
    """What was damaged on the way is an error of the wire, to be tried again."""
    checksum = base64.b64encode(zlib.crc32(b"0123456789").to_bytes(4, "big")).decode()
    script = serve(answer(200, b"0123456780", {"x-amz-checksum-crc32": checksum}))
    with pytest.raises(StoreError, match="damaged"):
        at(script.url).get("a", limit=10)


def test_a_write_carries_a_checksum(serve: Serve, answer: Any) -> None:
    """In a header and over the plain body, which services other than AWS understand too."""
    script = serve(answer(200))
    at(script.url).put("a", b"0123456789")
    [(method, headers)] = script.requests
    checksum = base64.b64encode(zlib.crc32(b"0123456789").to_bytes(4, "big")).decode()
    assert method == "PUT"
    assert headers["x-amz-checksum-crc32"] == checksum
    assert headers["Content-Length"] == "10"
    assert "aws-chunked" not in headers.get("Content-Encoding", "")


def test_the_verbs_cost_one_request_each(serve: Serve, answer: Any) -> None:
    """Latency is most of what a small object costs."""
    modified = {"Last-Modified": "Mon, 06 May 2024 07:08:09 GMT"}
    script = serve(answer(200, b"", modified))
    for verb in ("get", "put", "stat", "delete"):
        VERBS[verb](at(script.url))
    assert [method for method, _ in script.requests] == ["GET", "PUT", "HEAD", "DELETE"]


def test_the_endpoint_may_come_from_the_environment(
    s3_bucket: str, moto_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variables that every AWS tool reads, and then with the bucket in the path."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        with monkeypatch.context() as patch:
            patch.setenv(name, moto_server.replace("127.0.0.1", "localhost"))
            S3Store(f"s3://{s3_bucket}").put("a", b"1")
            assert S3Store(f"s3://{s3_bucket}").get("a", limit=1) == b"1"


def test_the_prefix_is_kept(s3_server: Place, s3_client: Any, s3_bucket: str) -> None:
    """Objects lie below it, and its neighbours are not seen."""
    s3_client.put_object(Bucket=s3_bucket, Key="some/prefix-other/a", Body=b"")
    s3_client.put_object(Bucket=s3_bucket, Key="a", Body=b"")
    s3_server().put("a", b"1")
    assert s3_client.head_object(Bucket=s3_bucket, Key="some/prefix/a")["ContentLength"] == 1
    assert [stat.key for stat in s3_server().list()] == ["a"]


def test_a_listing_of_many_pages(s3_server: Place, s3_bucket: str, moto_server: str) -> None:
    """Every key comes once, in order, whatever the size of a page."""
    names = [f"k/{number:03}" for number in range(25)]
    for name in names:
        s3_server().put(name, b"")
    url = f"s3://{s3_bucket}/some/prefix?endpoint={moto_server}"
    store = S3Store(url, tuning=Tuning(page=7))
    assert [stat.key for stat in store.list()] == names


def test_more_objects_than_s3_lists_at_once(s3_in_process: Place) -> None:
    """The service's own limit is 1000."""
    from moto.s3.models import s3_backends

    backend = s3_backends["123456789012"]["aws"]
    for number in range(1005):
        backend.put_object("bucket", f"some/prefix/k/{number:04}", b"")
    assert [stat.key for stat in s3_in_process().list("k/")] == [f"k/{n:04}" for n in range(1005)]


def test_a_large_object_goes_in_parts(
    s3_server: Place, s3_client: Any, s3_bucket: str, tmp_path: Path
) -> None:
    """As many as its size asks for; the last is what is left."""
    file = tmp_path / "pack"
    file.write_bytes(bytes(range(256)) * (12 * MIB // 256) + b"end")
    s3_server().put_file("pack", file)
    found = s3_client.head_object(Bucket=s3_bucket, Key="some/prefix/pack", PartNumber=1)
    assert found["PartsCount"] == 3
    assert s3_server().get("pack", limit=13 * MIB) == file.read_bytes()


def test_parts_that_are_given_up_are_aborted(
    s3_server: Place, s3_client: Any, s3_bucket: str
) -> None:
    """Nothing is left that shows or costs money."""
    with pytest.raises(StoreError, match="changed size"):
        s3_server()._put("pack", Source(io.BytesIO(bytes(11 * MIB)), 12 * MIB, "pack"))
    assert "Uploads" not in s3_client.list_multipart_uploads(Bucket=s3_bucket)
    assert list(s3_server().list()) == []


def test_a_part_that_fails(serve: Serve, answer: Any) -> None:
    """The upload is aborted, and the error is the part's."""
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    script = serve(answer(200, begun), answer(403, trouble("AccessDenied")))
    with pytest.raises(AccessDenied, match="UploadPart of pack"):
        at(script.url, threshold=10, part=5, at_once=1).put("pack", b"0123456789")
    assert [method for method, _ in script.requests] == ["POST", "PUT", "DELETE"]


def test_a_part_of_a_read_that_fails(serve: Serve, answer: Any) -> None:
    """The read as a whole fails; no hole is left."""
    whole = answer(200, b"0123456789", {"ETag": '"v1"'})
    first = answer(206, b"01234", {"Content-Range": "bytes 0-4/10"})
    script = serve(whole, first, answer(403, trouble("AccessDenied")))
    with pytest.raises(AccessDenied):
        at(script.url, threshold=10, part=5, at_once=1).get("a", limit=10)
    assert script.requests[1][1]["If-Match"] == '"v1"'


def test_encryption_is_asked_for(s3_bucket: str, moto_server: str, s3_client: Any) -> None:
    """For small objects and for those in parts."""
    url = f"s3://{s3_bucket}?endpoint={moto_server}&kms_key=alias/aws/s3"
    store = S3Store(url, tuning=Tuning(threshold=6 * MIB, part=5 * MIB))
    store.put("small", b"1")
    store.put("large", bytes(6 * MIB))
    for key in ("small", "large"):
        found = s3_client.head_object(Bucket=s3_bucket, Key=key)
        assert found["ServerSideEncryption"] == "aws:kms"


def test_a_role_is_assumed(s3_in_process: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at the first request, and its credentials are the ones used."""
    from botocore.credentials import AssumeRoleCredentialFetcher

    asked: list[str] = []
    fetch = AssumeRoleCredentialFetcher.fetch_credentials

    def counted(self: Any) -> Any:
        asked.append(self._role_arn)
        return fetch(self)

    monkeypatch.setattr(AssumeRoleCredentialFetcher, "fetch_credentials", counted)
    role = "arn:aws:iam::123456789012:role/cache"
    store = S3Store(f"s3://bucket?role={role}")
    store.put("a", b"1")
    assert store.get("a", limit=1) == b"1"
    assert asked == [role]


def test_a_role_that_may_not_be_assumed(serve: Serve, answer: Any,
                                        monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The error names the role, not the object."""
    denied = b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
    script = serve(answer(403, denied))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", script.url)
    role = "arn:aws:iam::123456789012:role/cache"
    with pytest.raises(AccessDenied, match=f"assume {role}"):
        S3Store(f"s3://bucket?role={role}").check()


def test_a_role_from_something_else(
    serve: Serve, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login page of a proxy holds no credentials."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", serve(answer(200, b"<html><p>Log in")).url)
    with pytest.raises(StoreError, match="does not answer as AWS does"):
        S3Store("s3://bucket?role=arn:aws:iam::123456789012:role/cache").check()


def test_a_role_without_credentials_to_assume_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nobody who could assume it."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AccessDenied, match="AWS_PROFILE"):
        S3Store("s3://bucket?role=arn:aws:iam::123456789012:role/cache").check()


def test_boto3_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package."""
    import sys

    monkeypatch.setitem(sys.modules, "cachesvc.store.s3_wire", None)
    with pytest.raises(UsageError, match="needs the package boto3"):
        S3Store("s3://bucket").check()
