"""Many processes of one node start at once: the server counts one transfer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc.local.host import read_environment
from cachesvc.local.live import live_directory
from tests.faults.proxy import Proxy, Rule
from tests.start.conftest import Starts, fresh, starts  # noqa: F401
from tests.start.test_processes import TOOLS

from .conftest import Goods, makers

PACKS = Rule("slow", method="GET", suffix=".tar.zst")
"""Counted, and not slow, as the proxy has been told to go on."""


@dataclass(frozen=True)
class Counted:
    """A store on a service that counts how often a pack is asked for."""

    url: str
    proxy: Proxy

    @property
    def transfers(self) -> int:
        return self.proxy.injected["slow"]


@pytest.fixture
def counted(s3: str, bucket: str) -> Iterator[Counted]:
    with Proxy(s3) as proxy:
        proxy.go.set()
        proxy.expect(PACKS)
        yield Counted(bucket.replace(s3, proxy.url), proxy)


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCCACHE_TRUST", "store")
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("number", [4, pytest.param(32, marks=pytest.mark.slow)])
def test_one_of_many_pulls_transfers(
    number: int, counted: Counted, goods: Goods, tmp_path: Path
) -> None:
    """So many commands at once into the live directory of their node: the pack is asked for once,
    all end with 0, one says that it seeded and the others that all is in place, and it is."""
    cachesvc.push("m", store=counted.url, triton_dir=goods("maker", "ABCDEF"))
    counted.proxy.expect(PACKS)
    command = [sys.executable, "-m", "tccache", "pull", "m", "--store", counted.url, "--json"]
    pulls = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(number)
    ]
    said = [pull.communicate(timeout=300) for pull in pulls]
    assert [pull.returncode for pull in pulls] == [0] * number, said
    transfers = [json.loads(out) for out, _ in said]
    assert sorted(t["seeded"] for t in transfers) == [0] * (number - 1) + [6]
    assert sorted(t["in_place"] for t in transfers) == [0] + [6] * (number - 1)
    assert counted.transfers == 1
    live = live_directory(read_environment().digest, os.environ).root
    assert makers(live / "triton") == dict.fromkeys("ABCDEF", "maker")
    assert not list(live.rglob(".tccache-stage-*"))


@pytest.fixture
def warm(starts: Starts, counted: Counted) -> Counted:  # noqa: F811
    """A cold start of Plain, published on the service that counts."""
    starts.run(
        """
model = torch.compile(Plain())
report = start(model, [ones()])
result = push(model, report)
""",
        store=counted.url,
        label="plain",
    )
    counted.proxy.expect(PACKS)
    return counted


SERVE = """
model = torch.compile(Plain())
report = start(model, [ones()])
result = [str(report.verdict), report.transfer.packs]
"""


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_one_of_four_forked_servers_transfers(
    warm: Counted,
    starts: Starts,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Four workers of a server that start at once on one live directory: all are warm, and one has
    brought the pack."""
    serve = "\n    ".join(["def serve():", *SERVE.strip().splitlines(), "return result"])
    told = starts.run(
        f"{TOOLS}{serve}\nresult = answers(*[fork(serve) for _ in range(4)])",
        store=warm.url,
        label="plain",
        home=tmp_path / "home",
    )
    assert sorted(told) == [["warm", 0]] * 3 + [["warm", 1]]
    assert warm.transfers == 1


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_one_of_four_processes_with_torch_transfers(
    warm: Counted,
    starts: Starts,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The same for four interpreters of their own."""
    told: list[Any] = []

    def serve() -> None:
        ran = starts.run(SERVE, store=warm.url, label="plain", home=tmp_path / "home", own=True)
        told.append(ran)

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [["warm", 0]] * 3 + [["warm", 1]]
    assert warm.transfers == 1
