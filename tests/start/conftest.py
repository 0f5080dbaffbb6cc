"""Fresh processes, and stores that some process has published into."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "fresh"))

from fresh_processes import FreshProcesses

START = """
def start(model, inputs=None, **options):
    with torch.no_grad():
        options = {"store": given.get("store"), "label": given.get("label"), **options}
        return cachesvc.warm_start(model, inputs, **options)

def shown(report):
    return {**report.to_json(), "text": str(report)}

def push(model, report=None, **options):
    pushed = cachesvc.push(
        model, store=given["store"], label=given.get("label"), report=report, **options
    )
    return pushed.publication.segment
"""


class Starts:
    """Runs scripts that have `start`, `shown` and `push` for the store and label in `given`."""

    def __init__(self, fresh: FreshProcesses) -> None:
        self._fresh = fresh

    def run(
        self, script: str, *, store: object = None, label: str | None = None, **how: Any
    ) -> Any:
        given = {"store": store and str(store), "label": label, **how.pop("given", {})}
        return self._fresh.run(START + script, given=given, **how)


@dataclass(frozen=True)
class Published:
    """A store with one bundle, and what the start that compiled it reported."""

    store: Path
    label: str
    report: dict[str, Any]
    segment: str
    home: Path


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshProcesses]:
    """Runs scripts in processes that have compiled nothing."""
    processes = FreshProcesses(tmp_path_factory.mktemp("fresh"))
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def starts(fresh: FreshProcesses) -> Starts:
    return Starts(fresh)


def _published(starts: Starts, folder: Path, model: str, label: str) -> Published:
    store, home = folder / "store", folder / "home"
    report, segment = starts.run(
        f"""
model = torch.compile({model}())
report = start(model, [ones()])
result = [shown(report), push(model, report)]
""",
        store=store,
        label=label,
        home=home,
    )
    return Published(store, label, report, segment, home)


@pytest.fixture(scope="session")
def plain(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A cold start of Plain, whose one graph has no kernel, published."""
    return _published(starts, tmp_path_factory.mktemp("plain"), "Plain", "plain")


@pytest.fixture(scope="session")
def fused(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A cold start of Fused, whose one graph has a C++ kernel, published."""
    return _published(starts, tmp_path_factory.mktemp("fused"), "Fused", "fused")


@dataclass(frozen=True)
class Bucket:
    """A bucket of an S3 server on this machine."""

    name: str
    endpoint: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}/some/prefix?endpoint={self.endpoint}"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """An S3 service with one bucket, for the few tests that need it."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = Bucket(f"bucket-{uuid.uuid4().hex}", f"http://{host}:{port}")
    client = boto3.client("s3", endpoint_url=found.endpoint)
    client.create_bucket(Bucket=found.name)
    client.close()
    yield found
    server.stop()
