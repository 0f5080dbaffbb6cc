"""run around a plain PyTorch HTTP server written without this library, and what run returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fresh_processes import QUICK

import cachesvc
from cachesvc.local.places import under
from cachesvc.local.quarantine import set_aside
from cachesvc.repository.repository import Repository
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.read_only import ReadOnly

ADD = 'mkdir -p "$TORCHINDUCTOR_CACHE_DIR/ab"; echo kernel > "$TORCHINDUCTOR_CACHE_DIR/ab/cnew.py"'

SERVER = """
import json, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from torch._dynamo.utils import counters


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.inner(x)) + 1


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with torch.no_grad():
            shape = list(model(torch.ones(2, 4)).shape)
        body = json.dumps({"shape": shape, "counters": counters["inductor"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    model = torch.compile(Model())
    server = HTTPServer(("127.0.0.1", 0), Handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""

INSIDE = """
import json, sys
import torch, cachesvc
from server import Model

with torch.no_grad():
    report = cachesvc.warm_start(torch.compile(Model()), [torch.ones(2, 4)], label="plain-server")
print(json.dumps(report.to_json()))
"""


@dataclass(frozen=True)
class Served:
    """One life of the server under `tccache run`: its answer, its exit code, what was reported."""

    answer: dict[str, Any]
    code: int
    report: dict[str, Any]
    said: str


def environment(home: Path) -> dict[str, str]:
    (home / "tmp").mkdir(parents=True)
    return {**os.environ, **QUICK, "TCCACHE_HOME": str(home), "TMPDIR": str(home / "tmp")}


def command(folder: Path, home: Path, script: str) -> list[str]:
    line = ["run", "plain-server", "--store", str(folder / "store"), "--report", str(home / "r")]
    return [sys.executable, "-m", "tccache", *line, "--", sys.executable, str(folder / script)]


def serve(folder: Path, home: Path) -> Served:
    """Starts the server, asks it once, and ends it as a container's stop does."""
    with subprocess.Popen(
        command(folder, home, "server.py"),
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, process.communicate()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=200) as answer:
            answered = json.load(answer)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    return Served(answered, process.returncode, json.loads((home / "r").read_text()), said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("served")
    (found / "server.py").write_text(SERVER)
    (found / "inside.py").write_text(INSIDE)
    return found


@pytest.fixture(scope="module")
def first(folder: Path) -> Served:
    """The server's first life, with an empty store."""
    return serve(folder, folder / "first")


@pytest.mark.xdist_group("start")
def test_the_first_start_of_a_plain_server_publishes(first: Served) -> None:
    """It compiles; all that is published at its end, if not before; the exit code is its own."""
    assert first.code == 5
    assert first.answer["shape"] == [2, 4]
    assert first.answer["counters"]["fxgraph_cache_miss"] == 1
    assert (first.report["bundles"], first.report["in_place"]) == ([], 0)
    assert first.report["added"] > 0
    assert sum(item["added"] for item in first.report["published"]) >= first.report["added"]
    assert first.report["notes"] == []


@pytest.mark.xdist_group("start")
def test_the_second_start_compiles_nothing(first: Served, folder: Path) -> None:
    """On another machine's empty directory: torch counts hits only, and no file is added."""
    second = serve(folder, folder / "second")
    counters = second.answer["counters"]
    assert (second.code, second.answer["shape"]) == (5, [2, 4])
    assert counters.get("fxgraph_cache_miss", 0) == 0
    assert counters["fxgraph_cache_hit"] == 1
    assert second.report["in_place"] == first.report["added"]
    assert 0 < second.report["used"] <= second.report["in_place"]
    assert (second.report["added"], second.report["published"]) == (0, [])
    assert second.said.endswith("; nothing was missing\n")


@pytest.mark.slow
@pytest.mark.xdist_group("start")
@pytest.mark.usefixtures("first")
def test_a_program_that_starts_warm_by_itself(folder: Path) -> None:
    """It finds the same live directory, with everything in place, and proves it."""
    home = folder / "third"
    done = subprocess.run(
        command(folder, home, "inside.py"),
        env={**environment(home), "TCCACHE_STORE": str(folder / "store")},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    outside = json.loads((home / "r").read_text())
    assert report["verdict"] == "warm", report
    assert report["live"] == outside["live"]
    assert report["transfer"]["seeded"] == 0
    assert report["transfer"]["in_place"] == outside["in_place"] > 0
    assert outside["added"] == 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.mark.usefixtures("home")
def test_what_run_returns(tmp_path: Path) -> None:
    """The program's end and the units, as plain values; the store as for every other verb."""
    store = tmp_path / "store"
    ran = cachesvc.run("m", ["sh", "-c", f"{ADD}; exit 3"], store=store)
    assert (ran.name, ran.exit_code, ran.signal) == ("m", 3, None)
    assert (ran.in_place, ran.used, ran.own, ran.added) == (0, 0, 0, 1)
    assert [item.address.model for item in ran.published] == ["any"]
    assert not ran.is_inert
    assert cachesvc.lookup("m", store=store).hit
    killed = cachesvc.run("m", ["sh", "-c", "kill -9 $$"], store=store)
    assert (killed.exit_code, killed.signal) == (137, 9)
    assert (killed.in_place, killed.used, killed.added, killed.published) == (1, 0, 0, ())


@pytest.mark.usefixtures("home")
def test_what_was_set_aside_here_is_told_and_is_not_the_bundles(tmp_path: Path) -> None:
    """The bundle's unit failed on this machine: each run says so, and what the program compiles in
    its place is this machine's own, used or not."""
    store, unit = tmp_path / "store", "inductor/ab/cnew"
    told = (f"{unit}: raises",)
    first = cachesvc.run("m", ["sh", "-c", ADD], store=store)
    assert first.live is not None
    set_aside(under(Path(first.live)), {unit: "raises"}, at="2026-01-01T00:00:00.000000Z")
    again = cachesvc.run("m", ["sh", "-c", ADD], store=store)
    assert (again.transfer.set_aside, again.notes) == (told, (f"set aside, {told[0]}",))
    assert (again.in_place, again.own, again.added) == (0, 0, 1)
    later = cachesvc.run("m", ["sh", "-c", "cat $TORCHINDUCTOR_CACHE_DIR/ab/* > seen"], store=store)
    assert (later.transfer.set_aside, len(later.notes)) == (told, 1)
    assert (later.in_place, later.used, later.own, later.own_used) == (0, 0, 1, 1)


@pytest.mark.usefixtures("home")
def test_a_program_that_the_kernel_refuses(tmp_path: Path) -> None:
    """The error is raised, and nothing goes on publishing for a program that never ran."""
    odd = tmp_path / "odd"
    odd.write_bytes(b"\x00\x01")
    odd.chmod(0o755)
    with pytest.raises(cachesvc.UsageError, match="Exec format error"):
        cachesvc.run("m", [str(odd)], store=tmp_path / "store")
    for thread in threading.enumerate():
        if thread.name == "tccache-publish":
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.usefixtures("home")
def test_a_store_for_reading_only(tmp_path: Path) -> None:
    """Trouble is told when it comes, and noted; the program's end stands."""
    told: list[str] = []
    store = ReadOnly(DirectoryStore(tmp_path / "store"))
    ran = cachesvc.run("m", ["sh", "-c", f"{ADD}; exit 3"], store=store, warn=told.append)
    assert (ran.exit_code, ran.added, ran.published) == (3, 1, ())
    assert list(ran.notes) == told
    assert "nothing was published" in told[0]
    assert "for reading only" in told[0]


@pytest.mark.usefixtures("home")
def test_what_the_store_has_by_then_is_not_published(tmp_path: Path) -> None:
    """As when the program publishes by itself, under its model."""
    store, tree = tmp_path / "store", tmp_path / "tree" / "ab"
    tree.mkdir(parents=True)
    (tree / "cnew.py").write_text("kernel\n")
    push = f"tccache push m --store {store} --inductor-dir {tree.parent}"
    publish = f"{Path(sys.executable).parent}/{push} >&2"
    ran = cachesvc.run("m", ["sh", "-c", f"{ADD}; {publish}"], store=store)
    assert (ran.exit_code, ran.added, ran.published, ran.notes) == (0, 1, (), ())


@pytest.mark.usefixtures("home")
def test_units_of_another_name_that_were_used_are_published(tmp_path: Path) -> None:
    """A start elsewhere needs them under this name; who made them is remembered."""
    store, use = tmp_path / "store", ["sh", "-c", 'cat "$TORCHINDUCTOR_CACHE_DIR"/ab/* > seen']
    cachesvc.run("base", ["sh", "-c", ADD], store=store)
    cachesvc.pull("base", store=store)
    ran = cachesvc.run("m", use, store=store)
    assert (ran.in_place, ran.own, ran.own_used, ran.added) == (0, 1, 1, 0)
    assert [item.added for item in ran.published] == [1]
    repository = Repository(DirectoryStore(store))
    base, mine = (
        [
            unit
            for bundle in repository.bundles(name)
            for segment in repository.read(bundle).segments
            for unit in segment.units
        ]
        for name in ("base", "m")
    )
    assert [unit.key for unit in mine] == ["inductor/ab/cnew"]
    assert [unit.origin.created for unit in mine] == [unit.origin.created for unit in base]


def test_usage_is_checked_before_anything_is_done(home: Path) -> None:
    """As on the command line."""
    for name, command, options in (
        ("m", [], {"store": "s"}),
        ("m", ["true"], {}),
        ("no/name", ["true"], {"store": "s"}),
        ("m", ["true"], {"store": "s", "deadline": 0}),
        ("m", ["no-such-program"], {"store": "s"}),
    ):
        with pytest.raises(cachesvc.UsageError):
            cachesvc.run(name, command, **options)
    assert not home.exists()
