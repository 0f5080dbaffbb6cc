"""What an s3:// URL may say."""

from __future__ import annotations

import pytest

from cachesvc.core.errors import UsageError
from cachesvc.store.s3_options import OPTIONS, S3Options


@pytest.mark.parametrize(
    ("url", "bucket", "root"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my.bucket/a/b/", "my.bucket", "a/b/"),
        ("s3://bucket/team=ml/a", "bucket", "team=ml/a/"),
        ("s3://bucket?region=eu-west-1", "bucket", ""),
    ],
)
def test_the_place(url: str, bucket: str, root: str) -> None:
    """The host is the bucket, the path is the prefix."""
    options = S3Options.parse(url)
    assert (options.bucket, options.root) == (bucket, root)


def test_every_option() -> None:
    """Each one is read, and the URL shown can be read again."""
    values = {
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-west-1",
        "profile": "two words",
        "addressing": "virtual",
        "role": "arn:aws:iam::123456789012:role/cache",
        "sse": "aws:kms",
        "kms_key": "alias/cache",
    }
    assert set(values) == set(OPTIONS)
    url = "s3://bucket/a?" + "&".join(f"{k}={v.replace(' ', '+')}" for k, v in values.items())
    options = S3Options.parse(url)
    assert {name: getattr(options, name) for name in OPTIONS} == values
    assert S3Options.parse(options.url) == options


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://", "no bucket name"),
        ("s3:///a", "no bucket name"),
        ("s3://b", "no bucket name"),
        ("s3://-bucket", "no bucket name"),
        ("s3://bucket:9000/a", "no bucket name"),
        ("s3://[bucket", "write s3://BUCKET/PREFIX"),
        ("s3://bucket/a//b", "empty or dotted"),
        ("s3://bucket/../b", "empty or dotted"),
        ("s3://bucket/a b", "space"),
        ("s3://bucket/a#b", "space"),
        ("s3://bucket?colour=red", "no option 'colour', only endpoint, region"),
        ("s3://bucket?region", "region has no value"),
        ("s3://bucket?region=a&region=b", "twice"),
        ("s3://bucket?addressing=auto", "one of path, virtual"),
        ("s3://bucket?sse=yes", "one of AES256"),
        ("s3://bucket?endpoint=127.0.0.1:9000", "endpoint is http://HOST"),
        ("s3://bucket?endpoint=http://[", "endpoint is http://HOST"),
        ("s3://bucket?colour=red&sse=yes", "colour.*one of AES256"),
    ],
)
def test_what_is_wrong_is_named(url: str, says: str) -> None:
    """Every issue at once."""
    with pytest.raises(UsageError, match=says):
        S3Options.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hunter2@bucket/a",
        "s3://bucket?secret=hunter2",
        "s3://bucket?endpoint=https://key:hunter2@host",
    ],
)
def test_credentials_in_a_url(url: str) -> None:
    """They are refused, and the refusal does not repeat them."""
    with pytest.raises(UsageError) as caught:
        S3Options.parse(url)
    assert "hunter2" not in str(caught.value)
