"""Scenes played in a process that is killed, or whose disk fails, at each of its changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent

Play = Callable[..., dict[str, int]]


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that counts a process's changes, and meets one of them."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("disk") / "disk.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", str(HERE / "disk.c"), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def play(disk: Path, tmp_path: Path) -> Play:
    """A function that plays scenes and gives the runs of each; in none was anything wrong.

    With `codes` the disk fails so; else the process is killed.
    """

    def play(*scenes: str, codes: Sequence[int] = (), every: int = 1) -> dict[str, int]:
        told = [tmp_path, str(every), ",".join(scenes), *map(str, codes)]
        done = subprocess.run(
            [sys.executable, HERE / "drive.py", *told],
            env={**os.environ, "LD_PRELOAD": str(disk)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["wrong"] == [], done.stderr[-2000:]
        return dict(found["runs"])

    return play
