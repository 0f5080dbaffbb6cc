"""Scratch folders of commands: held by all that work in them, removed once nobody does."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cachesvc.repository.scratch import scratch

BUILDER = """
import os, sys
from pathlib import Path
from cachesvc.start.process import execute, workplace

with workplace("build") as folder:
    execute("at_work", folder / "spec", folder / "result", dict(os.environ), None)
"""

# Says on a pipe with a name that it is there.
AT_WORK = """
import os, sys
pipe = open(os.environ["PIPE"], "wb", buffering=0)
pipe.write(b"at work")
sys.stdin.read()
"""


class Never(set[str]):
    """Holds nothing that is added: each scratch folder looks for what was left, as the first."""

    def add(self, item: str) -> None:
        pass


def test_a_child_holds_what_its_killed_parent_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build is killed, and the process that compiles for it goes on: the folder stays as long."""
    pipe, temporary = tmp_path / "pipe", tmp_path / "tmp"
    os.mkfifo(pipe)
    temporary.mkdir()
    (tmp_path / "at_work.py").write_text(AT_WORK)
    environ = {
        **os.environ,
        "PIPE": str(pipe),
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("cachesvc.core.temporary._swept", Never())
    with subprocess.Popen(
        [sys.executable, "-c", BUILDER], env=environ, stdin=subprocess.PIPE
    ) as builder:
        with pipe.open("rb", buffering=0) as told:
            assert told.read(7) == b"at work"
            builder.kill()
            builder.wait()
        with scratch("test"):
            (folder,) = temporary.glob("tccache-build-*")
        assert builder.stdin is not None
        builder.stdin.close()
        number = os.open(folder, os.O_RDONLY)
        fcntl.flock(number, fcntl.LOCK_EX)  # comes when that process has ended
        os.close(number)
        with scratch("test"):
            assert list(temporary.glob("tccache-build-*")) == []
    assert list(temporary.iterdir()) == []


def test_a_crash_loop_piles_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at each start with a pack half-fetched: only the last one's folder is there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dies = """
import os, sys, tempfile
from cachesvc.repository.scratch import scratch
tempfile.tempdir = sys.argv[1]
with scratch("pull") as folder:
    (folder / "pack").write_bytes(bytes(1 << 20))
    os.kill(os.getpid(), 9)
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", dies, str(tmp_path)], check=False)
        assert done.returncode == -9
        assert len(list(tmp_path.iterdir())) == 1
    with scratch("pull") as folder:
        assert list(tmp_path.iterdir()) == [folder]
