"""A proxy before an S3 service that does to chosen requests what networks and services do."""

from __future__ import annotations

import base64
import http.client
import socket
import struct
import threading
import zlib
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

Trouble = Literal[
    "refused",
    "lost",
    "reset",
    "cut",
    "empty",
    "flip",
    "lie",
    "half",
    "slow down",
    "internal",
    "inside",
    "denied",
    "hidden",
    "expired",
    "skewed",
    "slow",
    "hang",
    "drip",
]
ERRORS: dict[str, tuple[int, str]] = {
    "slow down": (503, "SlowDown"),
    "internal": (500, "InternalError"),
    "inside": (200, "InternalError"),
    "denied": (403, "AccessDenied"),
    "hidden": (403, "AccessDenied"),
    "expired": (400, "ExpiredToken"),
    "skewed": (403, "RequestTimeTooSkewed"),
}
_DRIP_S = 0.02


@dataclass(frozen=True)
class Rule:
    """What happens to requests number `first` to `first + count - 1` of those it is about: by
    method (one, or several with commas), by the end of the key, and by what the query holds.

    refused    the connection breaks, and nothing was done
    lost       it was done, and then the connection breaks: no answer comes
    reset      the connection breaks half-way through the answer's body, or before an empty one
    cut        half of the body comes, and then a clean end; `empty`: nothing of it comes
    flip       one byte of the body is another, and the checksum is that of the right ones
    lie        as `flip`, and no checksum comes with it
    half       half of the body comes, as if it were all
    slow down, internal, denied, expired, skewed   S3's own answers that are errors
    inside     an error in an answer that says 200, after it was done
    hidden     403 where there is no such object
    slow       no byte comes until the proxy is told to `go`; then all is done
    hang       no byte comes until the test ends
    drip       the body comes byte by byte, and not all of it until the test ends
    """

    trouble: Trouble
    method: str = "GET,HEAD,PUT,POST,DELETE"
    suffix: str = ""
    query: str = ""
    first: int = 1
    count: int = 1 << 62

    def is_about(self, method: str, url: str) -> bool:
        parts = urlsplit(url)
        named = method in self.method.split(",") and parts.path.endswith(self.suffix)
        return named and self.query in parts.query


@dataclass
class Answer:
    """What the service said."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def without(self, *prefixes: str) -> Answer:
        kept = [pair for pair in self.headers if not pair[0].lower().startswith(prefixes)]
        return Answer(self.status, kept, self.body)


class Proxy(ThreadingHTTPServer):
    """Passes requests on to the service at `endpoint`, but for what the rules say.

    `injected` counts what was done to requests, `asked` all requests, each by its method. `stuck`
    is set once a request waits. Where rules overlap, the first one wins.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.backend = urlsplit(endpoint).netloc
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.rules: tuple[Rule, ...] = ()
        self.injected: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.stuck, self.go, self.ended = (threading.Event() for _ in range(3))
        self._seen: Counter[int] = Counter()
        self._lock = threading.Lock()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.go.set()
        self.shutdown()
        self.server_close()

    def expect(self, *rules: Rule) -> None:
        """Follows these rules from now on, and counts anew."""
        with self._lock:
            self.rules = rules
            for counted in (self.injected, self.asked, self._seen):
                counted.clear()

    def handle_error(self, *_: object) -> None:
        """A client that went away is what tests are about."""

    def trouble(self, method: str, url: str) -> str:
        """What happens to this request; nothing for most."""
        due = ""
        with self._lock:
            self.asked[method] += 1
            for index, rule in enumerate(self.rules):
                if rule.is_about(method, url):
                    self._seen[index] += 1
                    if not due and 0 <= self._seen[index] - rule.first < rule.count:
                        due = rule.trouble
            if due:
                self.injected[due] += 1
        return due


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        trouble = self.server.trouble(self.command, self.path)
        if trouble in ("slow", "hang"):
            self._wait(self.server.go if trouble == "slow" else self.server.ended)
        if trouble in ("refused", "hang"):
            self._break()
        elif trouble in ERRORS and trouble not in ("hidden", "inside"):
            self._say(self._error(trouble))
        else:
            self._answer(trouble, self._ask(body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    def _answer(self, trouble: str, answer: Answer) -> None:
        if trouble == "lost":
            self._break()
        elif trouble == "inside" or (trouble == "hidden" and answer.status == 404):
            self._say(self._error(trouble))
        elif trouble in ("flip", "lie"):
            middle = len(answer.body) // 2
            flipped = bytes([answer.body[middle] ^ 1])
            wrong = answer.without("x-amz-checksum-")
            wrong.body = answer.body[:middle] + flipped + answer.body[middle + 1 :]
            if trouble == "flip":
                right = zlib.crc32(answer.body).to_bytes(4, "big")
                wrong.headers.append(("x-amz-checksum-crc32", base64.b64encode(right).decode()))
            self._say(wrong)
        elif trouble == "half":
            half = answer.without("x-amz-checksum-")
            half.body = answer.body[: len(answer.body) // 2]
            self._say(half)
        elif trouble in ("reset", "cut", "empty", "drip"):
            self._begin(answer, 0 if trouble == "empty" else len(answer.body) // 2)
            if trouble == "drip":
                self._drip(answer.body[len(answer.body) // 2 : -1])
            if trouble != "cut":
                self._break()
        else:
            self._say(answer)

    def _ask(self, body: bytes) -> Answer:
        backend = http.client.HTTPConnection(self.server.backend)
        headers = {name: text for name, text in self.headers.items() if name != "Expect"}
        backend.request(self.command, self.path, body, headers)
        response = backend.getresponse()
        answer = Answer(response.status, response.getheaders(), response.read())
        backend.close()
        return answer

    def _error(self, trouble: str) -> Answer:
        status, code = ERRORS[trouble]
        said = f"<Error><Code>{code}</Code><Message>said by the proxy</Message></Error>"
        headers = [("Content-Type", "application/xml"), ("Date", "Mon, 06 May 2024 07:08:09 GMT")]
        return Answer(status, headers, said.encode())

    def _say(self, answer: Answer) -> None:
        self._begin(answer, len(answer.body))

    def _begin(self, answer: Answer, count: int) -> None:
        """Says the head, with the length of all, and so many bytes of the body."""
        self.send_response_only(answer.status)
        told = answer.without("content-length", "transfer-encoding", "connection")
        for name, value in told.headers:
            self.send_header(name, value)
        length = dict(answer.headers).get("Content-Length", "0")
        size = length if self.command == "HEAD" else str(len(answer.body))
        self.send_header("Content-Length", size)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[:count])
        self.wfile.flush()
        self.close_connection = True

    def _drip(self, rest: bytes) -> None:
        self.server.stuck.set()
        for index in range(len(rest)):
            self.wfile.write(rest[index : index + 1])
            if self.server.ended.wait(_DRIP_S):
                return
        self.server.ended.wait()

    def _wait(self, event: threading.Event) -> None:
        self.server.stuck.set()
        event.wait()

    def _break(self) -> None:
        """Ends the connection as a machine does that has forgotten it."""
        self.wfile.flush()
        now = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        self.connection.close()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Says nothing."""
