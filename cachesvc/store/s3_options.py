"""What an s3:// URL says: the bucket, the prefix, and how to reach them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from urllib.parse import parse_qsl, urlencode, urlsplit

from cachesvc.core.errors import UsageError

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_PREFIX = re.compile(r"[^\x00-\x20\x7f?#\\]+")
_CHOICES = {
    "addressing": ("path", "virtual"),
    "sse": ("AES256", "aws:kms", "aws:kms:dsse"),
}


@dataclass(frozen=True, slots=True)
class S3Options:
    """s3://BUCKET/PREFIX?OPTION=VALUE&...; every option may be left out.

    endpoint    the URL of a service other than AWS; it then means addressing=path
    region      the bucket's region
    profile     a profile of the AWS configuration files
    addressing  path or virtual: where requests name the bucket
    role        the ARN of a role to assume through STS, renewed as it expires
    sse         server-side encryption of what is written: AES256, aws:kms or aws:kms:dsse
    kms_key     the KMS key for it; alone it means sse=aws:kms
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing: str | None = None
    role: str | None = None
    sse: str | None = None
    kms_key: str | None = None

    @classmethod
    def parse(cls, url: str) -> S3Options:
        """Reads a URL; raises UsageError that names everything wrong with it."""
        try:
            parts = urlsplit(url, allow_fragments=False)
        except ValueError:
            raise UsageError("the s3:// URL is wrong; write s3://BUCKET/PREFIX") from None
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        issues = [*_place_issues(parts.netloc, parts.path.strip("/")), *_option_issues(pairs)]
        if issues:
            # Not the URL itself: what is wrong with it may be that it holds a password.
            raise UsageError(f"the s3:// URL is wrong: {'; '.join(issues)}")
        return cls(parts.netloc, parts.path.strip("/"), **dict(pairs))

    @property
    def url(self) -> str:
        """The URL in its shortest form."""
        options = {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{place}?{urlencode(options, safe=':/')}" if options else place

    @property
    def root(self) -> str:
        """What comes before a store key in an object's name."""
        return f"{self.prefix}/" if self.prefix else ""


OPTIONS = tuple(field.name for field in fields(S3Options))[2:]


def _place_issues(bucket: str, prefix: str) -> Iterator[str]:
    if "@" in bucket:
        yield "credentials do not belong in it; use a profile or environment variables"
    elif not _BUCKET.fullmatch(bucket):
        yield f"{bucket!r} is no bucket name; write s3://BUCKET/PREFIX"
    if prefix and (not _PREFIX.fullmatch(prefix) or {"", ".", ".."} & set(prefix.split("/"))):
        yield f"the prefix {prefix!r} has an empty or dotted part, a space or a control character"


def _option_issues(pairs: list[tuple[str, str]]) -> Iterator[str]:
    for name, value in pairs:
        if name not in OPTIONS:
            yield f"there is no option {name!r}, only {', '.join(OPTIONS)}"
        elif not value:
            yield f"{name} has no value"
        elif value not in _CHOICES.get(name, (value,)):
            yield f"{name} is one of {', '.join(_CHOICES[name])}"
        elif name == "endpoint" and not _is_endpoint(value):
            yield "endpoint is http://HOST:PORT or https://HOST:PORT, without credentials"
    if len(dict(pairs)) != len(pairs):
        yield "an option appears twice"


def _is_endpoint(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
