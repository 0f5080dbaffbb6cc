"""The peak of a process's memory is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cachesvc.runtime import memory

HELD = 600_000_000
CHILD = f"""
import subprocess, sys
held = b"x" * {HELD}
print(subprocess.run([sys.executable, "-c", "{{}}"], capture_output=True, text=True).stdout)
"""
PEAK = "from cachesvc.runtime.memory import peak_bytes; print(peak_bytes())"


def test_it_grows_with_what_is_held() -> None:
    """By what was held, and it does not shrink."""
    script = f"import torch\n{PEAK}\nheld = bytearray(b'x') * {HELD}\ndel held\n{PEAK}"
    before, after = map(int, _run(script).split())
    assert after - before > 0.9 * HELD


def test_what_the_parent_holds_does_not_count() -> None:
    """A program with a large model that measures would else see its own size in every arm."""
    own = int(_run(PEAK))
    assert int(_run(CHILD.format(PEAK.replace('"', "'")))) < own + HELD / 2


def test_where_linux_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known, and not made up."""
    monkeypatch.setattr(memory, "Path", lambda _: Path("/nowhere"))
    assert memory.peak_bytes() is None


def _run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    return done.stdout
