"""An empty bucket that does not answer, or not to everything."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Bucket(ThreadingHTTPServer):
    """An S3 that holds nothing. `on` says which requests to hold up for ever: GET, or PUT of packs;
    with `denied` every PUT is forbidden."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, on: str = "", *, denied: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.on, self.denied, self.stuck = on, denied, threading.Event()
        self.url = f"s3://bucket/p?endpoint=http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Bucket:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def do_GET(self) -> None:
        if self.server.on == "GET":
            self._hang()
        elif "list-type" in self.path:
            listed = "<Name>bucket</Name><IsTruncated>false</IsTruncated>"
            self._answer(200, f"<ListBucketResult>{listed}</ListBucketResult>")
        else:
            self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.denied:
            self._answer(403, "<Error><Code>AccessDenied</Code></Error>")
        elif self.server.on == "PUT" and ".tar.zst" in self.path:
            self._hang()
        else:
            self._answer(200, "")

    def _hang(self) -> None:
        self.server.stuck.set()
        self.connection.recv(1)  # until the client is gone
        self.close_connection = True

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass
