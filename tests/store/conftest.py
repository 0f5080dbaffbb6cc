"""Places to put stores at: each fixture gives a function that opens the same place once more."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from cachesvc.store import contract
from cachesvc.store.contract import Store
from cachesvc.store.counting import Counting
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.faulty import Faulty
from cachesvc.store.fsspec_store import FsspecStore
from cachesvc.store.retrying import Retrying
from cachesvc.store.s3 import S3Store, Tuning

Place = Callable[[], Store]

SOURCES = Path(contract.__file__).parents[2]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _fake_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test can find real credentials, settings or an instance's metadata."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "TCCACHE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))


@pytest.fixture(scope="session", autouse=True)
def _descriptions_are_read_once() -> Iterator[None]:
    """A client takes a tenth of the time if it need not parse what S3 is; tests make hundreds."""
    from botocore.loaders import JSONFileLoader

    read = JSONFileLoader.load_file
    read_once = functools.cache(lambda path: read(JSONFileLoader(), path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read_once(path))
        yield


@pytest.fixture
def memory() -> Iterator[Place]:
    root = uuid.uuid4().hex
    yield lambda: FsspecStore(f"memory://{root}/prefix")
    with contextlib.suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm(f"/{root}", recursive=True)


@pytest.fixture
def directory(tmp_path: Path) -> Place:
    return lambda: DirectoryStore(tmp_path / "store")


class Objects(AbstractFileSystem):  # type: ignore[misc]
    """An object store as fsspec's drivers show one: files appear when they are closed."""

    protocol = "objects"
    cachable = False
    held: dict[str, bytes] = {}  # noqa: RUF012  shared on purpose, as a bucket is

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        inside = [name for name in self.held if name.startswith(f"{path}/")]
        if not inside:
            raise FileNotFoundError(path)
        here = {f"{path}/{name[len(path) + 1 :].partition('/')[0]}" for name in inside}
        infos = [self._entry(name) for name in sorted(here)]
        return infos if detail else [info["name"] for info in infos]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path not in self.held:
            raise FileNotFoundError(path)
        return self._entry(path)

    def _entry(self, path: str) -> dict[str, Any]:
        if path not in self.held:
            return {"name": path, "size": 0, "type": "directory"}
        size = len(self.held[path])
        return {"name": path, "size": size, "type": "file", "updated": "2024-05-06T07:08:09.123Z"}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        options.pop("autocommit", None)
        return ObjectFile(self, path, mode, **options)

    def _rm(self, path: str) -> None:
        if self.held.pop(self._strip_protocol(path), None) is None:
            raise FileNotFoundError(path)


class ObjectFile(AbstractBufferedFile):  # type: ignore[misc]
    """Collects blocks and publishes them at the last one."""

    def _initiate_upload(self) -> None:
        self.blocks: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.blocks.append(self.buffer.getvalue())
        if final:
            Objects.held[self.path] = b"".join(self.blocks)
        return True

    def _fetch_range(self, start: int, end: int) -> bytes:
        return Objects.held[self.path][start:end]


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(Objects, "held", {})
    fsspec.register_implementation("objects", Objects, clobber=True)
    return lambda: FsspecStore("objects://bucket/prefix", part=MIB, whole=2 * MIB)


@pytest.fixture
def s3_in_process() -> Iterator[Place]:
    import boto3
    from moto import mock_aws

    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="bucket")
        # Its buffers are not made for threads: one request at a time.
        tuning = Tuning(threshold=8 * MIB, part=5 * MIB, at_once=1)
        yield lambda: S3Store("s3://bucket/some/prefix", tuning=tuning)


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """The URL of an S3 service on this machine."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_client(moto_server: str) -> Iterator[Any]:
    """A client of the service that does not go through the store."""
    import boto3

    client = boto3.client("s3", endpoint_url=moto_server)
    yield client
    client.close()


@pytest.fixture
def s3_bucket(s3_client: Any) -> str:
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=bucket)
    return bucket


@pytest.fixture
def s3_server(moto_server: str, s3_bucket: str) -> Place:
    tuning = Tuning(threshold=8 * MIB, part=5 * MIB, at_once=3)
    url = f"s3://{s3_bucket}/some/prefix?endpoint={moto_server}"
    return lambda: S3Store(url, tuning=tuning)


@pytest.fixture
def retrying(directory: Place) -> Place:
    return lambda: Retrying(directory(), sleep=lambda _: None)


@pytest.fixture
def counting(directory: Place) -> Place:
    return lambda: Counting(directory())


@pytest.fixture
def faultless(directory: Place) -> Place:
    return lambda: Faulty(directory())


@dataclass
class Answer:
    """What a scripted server says to one request; it hangs up after `cut` bytes of the body."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass
class Script:
    """A server that gives prepared answers, the last one again and again, and keeps requests."""

    url: str
    answers: list[Answer]
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def answer() -> type[Answer]:
    return Answer


@pytest.fixture
def serve() -> Iterator[Callable[..., Script]]:
    """Starts scripted servers on this machine."""
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: Answer) -> Script:
        script = Script("", list(answers))
        server = ThreadingHTTPServer(("127.0.0.1", 0), _speaker(script))
        script.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return script

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _speaker(script: Script) -> type[BaseHTTPRequestHandler]:
    class Speaker(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # botocore waits a second for a 100 Continue otherwise

        def speak(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.requests.append((self.command, dict(self.headers)))
            said = script.next()
            self.send_response(said.status)
            length = {"Content-Length": str(len(said.body))}
            for name, value in {**length, "Connection": "close", **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said.body[: said.cut])
            self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = speak

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    return Speaker


@pytest.fixture
def child() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a process of its own; `user` is who it becomes once it has imported."""

    def run(
        code: str, *arguments: object, user: int | None = None, imports: str = ""
    ) -> subprocess.CompletedProcess[str]:
        become = ""
        if user is not None and os.geteuid() == 0:
            become = f"import os; os.setgroups([]); os.setgid({user}); os.setuid({user})"
        return subprocess.run(
            [sys.executable, "-c", f"{imports}\n{become}\n{code}", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run
