"""An S3 service behind a proxy that fails as told, and no real pause between attempts."""

from __future__ import annotations

import gc
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from cachesvc.start.work import Work
from cachesvc.store.s3 import S3Store, Tuning
from tests.faults.proxy import Proxy
from tests.store.conftest import (  # noqa: F401
    _descriptions_are_read_once,
    answer,
    memory,
    objects,
    serve,
)

BUCKET = "bucket"
TUNING = Tuning(threshold=1000, part=400, at_once=2)


@pytest.fixture(scope="session")
def service() -> Iterator[str]:
    """The URL of an S3 service on this machine that takes parts of any size."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture
def proxy(service: str) -> Iterator[Proxy]:
    with Proxy(service) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def client(service: str) -> Iterator[Any]:
    """A client of the service that goes past the proxy."""
    client = boto3.client("s3", endpoint_url=service)
    client.create_bucket(Bucket=BUCKET)
    yield client
    client.close()


@dataclass(frozen=True)
class Place:
    """A prefix of its own in the bucket, past the proxy."""

    client: Any
    prefix: str

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=data)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")

    def listed(self) -> list[str]:
        page = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}/")
        found = page.get("Contents", ())
        return [item["Key"].removeprefix(f"{self.prefix}/") for item in found]

    def clear(self) -> None:
        for key in self.listed():
            self.remove(key)

    def read(self, key: str) -> bytes | None:
        """What lies there; None if nothing does."""
        try:
            found = self.client.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")
        except self.client.exceptions.NoSuchKey:
            return None
        with found["Body"] as body:
            data: bytes = body.read()
        return data


@pytest.fixture
def place(client: Any) -> Place:
    return Place(client, uuid.uuid4().hex)


@pytest.fixture
def url(proxy: Proxy, place: Place) -> str:
    """The store behind the proxy."""
    return f"s3://{BUCKET}/{place.prefix}?endpoint={proxy.url}"


@pytest.fixture
def store(url: str) -> S3Store:
    return S3Store(url, tuning=TUNING)


def time_is_up_at(event: threading.Event) -> Callable[..., bool]:
    """In the place of `Work.wait`: whatever time was given is over once the event has come."""

    def wait(work: Work[Any], seconds: float | None = None) -> bool:
        assert event.wait(60)
        return work.is_done

    return wait


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, in seconds; none of them is made."""
    made: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=made.append))
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits a quarter of a second for the next byte."""
    monkeypatch.setattr("cachesvc.store.s3_wire.READ_S", 0.25)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A connection that is broken on purpose leaves a socket to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """Sockets that are left go before the next module, which may not leave any."""
    yield
    gc.collect()
