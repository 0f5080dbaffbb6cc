"""What the tests of this room share: native libraries built on the spot, a torch that is a text."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

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
