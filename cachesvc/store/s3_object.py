"""Reading one S3 object, in one stream or in spans, past connections that break."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from cachesvc.core.errors import AccessDenied, StoreError
from cachesvc.store.in_order import in_order
from cachesvc.store.s3_wire import Wire
from cachesvc.store.streams import CHUNK

RESUMES = 3
"""How often a span is asked for again from where its connection broke."""


class S3Object:
    """An object as one response described it; every later request insists on the same version."""

    def __init__(self, wire: Wire, key: str, name: str, response: dict[str, Any]) -> None:
        self.size: int = wire.told(response, "ContentLength")
        self._wire = wire
        self._key = key
        self._same = {"Key": name}
        if etag := response.get("ETag"):
            self._same["IfMatch"] = etag
        self._body = response["Body"]

    def stream(self) -> Iterator[bytes]:
        """All bytes, from the response that is there already."""
        return self._span(0, self.size, self._body)

    def parts(self, step: int, at_once: int) -> Iterator[bytes]:
        """All bytes, by requests of `step` bytes each, `at_once` of them at a time."""
        self._body.close()
        jobs = (
            partial(self._collect, start, min(start + step, self.size))
            for start in range(0, self.size, step)
        )
        for chunks in in_order(jobs, at_once):
            yield from chunks

    def close(self) -> None:
        self._body.close()

    def _collect(self, start: int, stop: int) -> list[bytes]:
        return list(self._span(start, stop, self._open(start, stop)))

    def _span(self, start: int, stop: int, body: Any) -> Iterator[bytes]:
        resumes = RESUMES
        while True:
            try:
                while chunk := self._wire.read(body, CHUNK, self._key):
                    start += len(chunk)
                    yield chunk
                return
            except AccessDenied:
                raise
            except StoreError:
                body.close()
                resumes -= 1
                if resumes < 0 or start >= stop:
                    raise
            body = self._open(start, stop)

    def _open(self, start: int, stop: int) -> Any:
        response = self._wire.call(
            "get_object", self._key, **self._same, Range=f"bytes={start}-{stop - 1}"
        )
        if not response.get("ContentRange", "").startswith(f"bytes {start}-"):
            response["Body"].close()
            raise StoreError(f"{self._key}: the endpoint does not answer ranges; use another one")
        return response["Body"]
