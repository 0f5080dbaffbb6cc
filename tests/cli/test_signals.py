"""Ctrl-C and SIGTERM in the middle: the exit code, and nothing half-written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

Command = Callable[..., Any]
Start = Callable[..., Any]

# A test run in the background ignores SIGINT, and so would its children.
LISTENING = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
SIGNALS = pytest.mark.parametrize(
    "ending",
    [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "")],
    ids=["interrupt", "terminate"],
)


NOTHING = (
    b"<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
)


class StuckS3(ThreadingHTTPServer):
    """An empty bucket that takes small objects and never answers for a pack."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.written: list[str] = []
        self.stuck = threading.Event()

    @property
    def url(self) -> str:
        return f"s3://bucket/p?endpoint=http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StuckS3

    def do_GET(self) -> None:
        if "list-type" in self.path:
            self._answer(200, NOTHING)
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.written.append(self.path.partition("?")[0])
        if ".tar.zst" in self.path:
            self.server.stuck.set()
            self.connection.recv(1)  # until the client is gone
            self.close_connection = True
        else:
            self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def s3() -> Iterator[StuckS3]:
    with StuckS3() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@SIGNALS
def test_push_in_the_middle_of_a_pack(
    start: Start, s3: StuckS3, tree: Path, ending: tuple[int, int, str]
) -> None:
    """No manifest follows, so no reader ever sees the segment; no temporary file stays."""
    number, code, said = ending
    line = ("push", "m", "--store", s3.url, "--trust", "store", "--inductor-dir", tree)
    with start(*line, first=LISTENING) as process:
        assert s3.stuck.wait(60)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.lstrip("\n")) == (code, "", said)
    assert s3.written[0].endswith("/tccache.json")
    assert [path.endswith(".tar.zst") for path in s3.written[1:]] == [True]
    assert not os.listdir("tmp")


@SIGNALS
def test_pull_while_another_process_seeds(
    start: Start, store: Path, ending: tuple[int, int, str]
) -> None:
    """It stops waiting at once; the directory holds nothing of the bundle."""
    records = Path("out") / ".tccache"
    records.mkdir(parents=True)
    number, code, said = ending
    line = ("pull", "m", "--store", store, "--inductor-dir", "out", "--verbose")
    with (
        FileLock(records / "lock"),
        start(*line, first=LISTENING) as process,
    ):
        assert process.stderr.readline() == "look for bundles\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err.endswith(said)
    assert "Traceback" not in err
    assert os.listdir("out") == [".tccache"]
    assert not os.listdir("tmp")
