"""A store under an S3 prefix, on AWS or any service that speaks its protocol.

S3 shows an object whole or not at all, whether it came in one request or in parts, so order needs
no care here. Every write carries a checksum of its bytes that the service verifies, and the
condition that there is no object of its name yet; reads are verified by botocore where the service
sends a checksum. Objects are deleted one at a time: a policy can then allow that by their names.
"""

from __future__ import annotations

import base64
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cachesvc.core.errors import StoreError, UsageError
from cachesvc.store.contract import Stat, Store
from cachesvc.store.in_order import beside, in_order
from cachesvc.store.s3_conflict import persist
from cachesvc.store.s3_options import S3Options
from cachesvc.store.streams import Source, Target

if TYPE_CHECKING:
    from cachesvc.store.s3_wire import Wire

MAX_PARTS = 10_000
ABORT_S = 5.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """How objects move. About `part` * (`at_once` + 1) bytes are in memory for each large one.

    threshold  from this many bytes on an object moves in parts
    part       bytes of a part; S3 refuses less than 5 MiB, and grows where 10,000 would not do
    at_once    parts on their way at a time
    page       objects that one listing request asks for
    """

    threshold: int = 16 << 20
    part: int = 8 << 20
    at_once: int = 8
    page: int = 1000


class _Own:
    """One process's client; a fork makes its own, as two cannot share a connection or a lock."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.wire: Wire | None = None


class S3Store(Store):
    """s3://BUCKET/PREFIX, with the options of S3Options as a query.

    Credentials, region and endpoint also come from the environment and the AWS configuration files,
    as for every AWS tool. botocore is imported, and the client made, at the first request.
    Raises UsageError if the URL is wrong.
    """

    remote = True

    def __init__(self, url: str, *, tuning: Tuning | None = None) -> None:
        self._options = S3Options.parse(url)
        self.url = self._options.url
        self._tuning = tuning or Tuning()
        self._own = _Own()

    @property
    def _wire(self) -> Wire:
        if self._own.process != os.getpid():
            self._own = _Own()
        own = self._own
        with own.lock:
            if own.wire is None:
                own.wire = _wire(self._options)
            return own.wire

    def _fetch(self, key: str, target: Target) -> int | None:
        response = self._wire.find("get_object", key, Key=self._name(key), ChecksumMode="ENABLED")
        if response is None:
            return None
        from cachesvc.store.s3_object import S3Object

        found = S3Object(self._wire, key, self._name(key), response)
        try:
            if found.size < self._tuning.threshold:
                return target.receive(found.size, found.stream())
            parts = found.parts(self._tuning.part, self._tuning.at_once)
            return target.receive(found.size, parts)
        finally:
            found.close()

    def _put(self, key: str, source: Source) -> None:
        in_parts = source.size >= self._tuning.threshold
        persist(partial(self._put_parts if in_parts else self._put_whole, key, source))

    def _put_whole(self, key: str, source: Source) -> None:
        data = source.whole()
        self._wire.create(
            "put_object", key, Key=self._name(key), Body=data, **_sum(data), **self._encryption()
        )

    def _put_parts(self, key: str, source: Source) -> None:
        name = {"Key": self._name(key)}
        begun = self._wire.call(
            "create_multipart_upload", key, **name, ChecksumAlgorithm="CRC32", **self._encryption()
        )
        upload = {**name, "UploadId": begun["UploadId"]}
        created = False
        try:
            jobs = self._part_jobs(key, upload, source)
            parts = {"Parts": list(in_order(jobs, self._tuning.at_once))}
            created = self._wire.create(
                "complete_multipart_upload", key, **upload, MultipartUpload=parts
            )
        finally:  # at an interrupt too: parts that nobody aborts cost money for ever
            if not created:
                self._abort(key, upload)

    def _abort(self, key: str, upload: dict[str, str]) -> None:
        """Not for longer than a service needs that answers at all: this may be an interrupt."""
        beside(partial(self._wire.call, "abort_multipart_upload", key, **upload), ABORT_S)

    def _part_jobs(
        self, key: str, upload: dict[str, str], source: Source
    ) -> Iterator[Callable[[], dict[str, Any]]]:
        size = max(self._tuning.part, -(-source.size // MAX_PARTS))
        for number, data in enumerate(source.chunks(size), 1):
            yield partial(self._put_part, key, {**upload, "PartNumber": number}, data)

    def _put_part(self, key: str, part: dict[str, Any], data: bytes) -> dict[str, Any]:
        response = self._wire.call("upload_part", key, **part, Body=data, **_sum(data))
        told = {name: response.get(name) for name in ("ETag", "ChecksumCRC32")}
        return {"PartNumber": part["PartNumber"], **{k: v for k, v in told.items() if v}}

    def _list(self, prefix: str) -> Iterator[Stat]:
        query = {"Prefix": self._name(prefix), "MaxKeys": self._tuning.page}
        while True:
            page = self._wire.call("list_objects_v2", prefix or "the store", **query)
            if "Name" not in page:  # what is no listing at all parses as an empty one
                raise StoreError(f"{self.url}: the endpoint does not answer as S3 does; check it")
            for item in page.get("Contents", ()):
                key = self._wire.told(item, "Key")[len(self._options.root) :]
                yield self._as_stat(key, "Size", item)
            if not page.get("IsTruncated"):
                return
            token = self._wire.told(page, "NextContinuationToken")
            if token == query.get("ContinuationToken"):
                raise StoreError(f"{self.url}: the endpoint lists the same page for ever; check it")
            query["ContinuationToken"] = token

    def _stat(self, key: str) -> Stat | None:
        found = self._wire.find("head_object", key, Key=self._name(key))
        return None if found is None else self._as_stat(key, "ContentLength", found)

    def _as_stat(self, key: str, size: str, response: dict[str, Any]) -> Stat:
        modified = self._wire.told(response, "LastModified")
        return Stat(key, self._wire.told(response, size), modified.astimezone(timezone.utc))

    def _delete(self, key: str) -> None:
        self._wire.find("delete_object", key, Key=self._name(key))

    def _now(self) -> datetime:
        """When the service answered: each of its answers is dated."""
        query = {"Prefix": self._name(""), "MaxKeys": 1}
        answer = self._wire.call("list_objects_v2", "the store", **query)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
        try:
            return parsedate_to_datetime(date).astimezone(timezone.utc)
        except ValueError:  # never by this host's clock: what looks old may be deleted
            raise StoreError(f"{self.url}: the endpoint does not tell the time; check it") from None

    def _encryption(self) -> dict[str, str]:
        """What a write asks of the service beyond the bucket's own setting."""
        kind = self._options.sse or ("aws:kms" if self._options.kms_key else None)
        asked = {"ServerSideEncryption": kind, "SSEKMSKeyId": self._options.kms_key}
        return {name: value for name, value in asked.items() if value}

    def _name(self, key: str) -> str:
        return self._options.root + key


def _wire(options: S3Options) -> Wire:
    try:
        from cachesvc.store.s3_wire import Wire
    except ImportError as error:
        raise UsageError(f"{options.url} needs the package boto3: {error}") from error
    return Wire(options)


def _sum(data: bytes) -> dict[str, str]:
    return {"ChecksumCRC32": base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()}
