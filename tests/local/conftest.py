"""What the tests of this room share: native libraries built on the spot, a torch that is a text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cachesvc.local import live as live_module

Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """A function of (source text, *flags) that gives the path of a shared library."""
    folder = tmp_path_factory.mktemp("libraries")
    numbers = count()

    def build(source: str, *flags: str, compiler: str = "gcc") -> Path:
        path = folder / f"library{next(numbers)}.so"
        language = "c++" if compiler == "g++" else "c"
        command = [compiler, "-x", language, "-", "-shared", "-fPIC", "-o", str(path), *flags]
        subprocess.run(command, input=source, text=True, check=True)
        return path

    return build


@pytest.fixture
def torch_text(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes the version file of a torch build and gives its folder."""

    def write(**values: str | None) -> Path:
        folder = tmp_path / "site" / "torch"
        folder.mkdir(parents=True, exist_ok=True)
        named = {"__version__": "2.11.0", "git_version": "70d99e9", "cuda": None, "hip": None}
        lines = [f"{name} = {value!r}" for name, value in (named | values).items()]
        (folder / "version.py").write_text(
            "from typing import Optional\n" + "\n".join(lines) + "\n"
        )
        (folder / "__init__.py").write_text("raise ImportError('torch must not be imported')\n")
        return folder

    return write


UNPRIVILEGED = 12345
"""A user without an entry in passwd, as containers are given."""

_PRELUDE = f"""
import json, os, sys, tempfile
from pathlib import Path
from cachesvc.local import ledger, live, places, seed, tree
from cachesvc.core.errors import TccacheError

def show(value):
    json.dump(value, sys.stdout)

# All is imported before: the interpreter's own files may be closed to others.
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({UNPRIVILEGED})
    os.setuid({UNPRIVILEGED})
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="tccache-test-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=True)
    shutil.rmtree(folder)


@pytest.fixture
def unprivileged() -> Callable[..., Any]:
    """A function that runs Python source, with arguments, for a user who is nobody in particular.

    It gives what the source passes to `show`. Root becomes that user; permissions hold for both.
    """

    def run(source: str, *args: object, environ: dict[str, str] | None = None) -> Any:
        result = subprocess.run(
            [sys.executable, "-c", _PRELUDE + textwrap.dedent(source), *map(str, args)],
            env=os.environ if environ is None else environ,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    return run


@pytest.fixture
def fresh_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has its own temporary directory, and no folder of an earlier test."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    live_module._fresh_home.cache_clear()
    yield
    live_module._fresh_home.cache_clear()
