"""The command as its user meets it: in this process where that is equal, else in a child."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachesvc.local.megafile import Artifact, put_together
from tccache.main import run

ENTRY = "from tccache.main import entry\nentry()"

COMPONENTS = {
    "torch": "2.11.0+cu130",
    "torch_git": "70d99e998b4955e0049d13a98d77ae1b14db1f45",
    "triton": "3.6.0",
    "runtime": "cuda-13.0",
    "device": "NVIDIA H200",
    "capability": "9.0",
    "python": "cpython-312-x86_64-linux-gnu",
    "platform": "linux-x86_64-glibc",
}


@dataclass(frozen=True)
class Ran:
    """What a run of the command left: its exit code and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout; anything beside it fails."""
        return json.loads(self.out)

    @property
    def is_one_error(self) -> bool:
        """Whether stderr holds one error, in one line, and stdout nothing."""
        return not self.out and re.fullmatch(r"error: [^\n]+\n", self.err) is not None


Command = Callable[..., Ran]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def _own_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test has its own working directory, live directory and temporary directory."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def tccache(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command line in this process, with these environment variables."""

    def command(*arguments: str | Path, **environment: str) -> Ran:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            code = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return command


@pytest.fixture
def start() -> Start:
    """Starts a command line in a child process; `first` is Python code that it runs before."""

    def child(*arguments: str | Path, first: str = "", **settings: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, **settings.pop("env", {})}
        environment.pop("PYTHONUNBUFFERED", None)
        streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [sys.executable, "-c", f"{first}\n{ENTRY}", *map(str, arguments)],
            env=environment,
            text=True,
            **{"stdin": subprocess.DEVNULL, **streams, **settings},
        )

    return child


@pytest.fixture
def child(start: Start) -> Command:
    """Runs a command line in a child process to its end."""

    def command(*arguments: str | Path, timeout_s: float = 60, **settings: Any) -> Ran:
        with start(*arguments, **settings) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Ran(process.returncode, out or "", err or "")

    return command


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small Inductor directory: two units, and a lock that nobody wants."""
    root = tmp_path / "tree"
    for name, text in (("ab/cabc.py", "kernel"), ("fxgraph/xy/fkey/hash", "graph")):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    (root / "locks").mkdir()
    (root / "locks" / "fkey.lock").touch()
    return root


@pytest.fixture
def mega(tmp_path: Path) -> Path:
    """A mega-cache file of two artifacts."""
    file = tmp_path / "mega.bin"
    file.write_bytes(
        put_together([Artifact("inductor", "k1", b"one"), Artifact("autotune", "k2", b"two")])
    )
    return file


@pytest.fixture
def store(tmp_path: Path, tree: Path, tccache: Command) -> Path:
    """A store that holds the tree under the name `m`."""
    place = tmp_path / "store"
    assert tccache("push", "m", "--store", place, "--inductor-dir", tree).code == 0
    return place


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The fingerprint of another machine, as `tccache env --json` writes it."""
    file = tmp_path / "h200.json"
    file.write_text(json.dumps({"schema": "tccache.env/1", "components": COMPONENTS}))
    return file
