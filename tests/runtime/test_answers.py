"""What Triton asks of programs is asked once on a machine, and again when they have changed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cachesvc.runtime import answers, remembered

TRITON = Path(__file__).parents[2] / ".venv" / "triton"


@dataclass
class Tool:
    """As Triton's NvidiaTool, which runs what it is made from."""

    path: str
    version: str

    @staticmethod
    def from_path(path: str) -> Tool | None:
        found = Path(path)
        if not found.exists():
            return None
        Triton.asked += 1
        return Tool(path, found.read_text())


class Triton:
    """Its modules that ask programs, and how often they did."""

    asked = 0

    def __init__(self, folder: Path) -> None:
        self.ptxas = folder / "ptxas"
        self.ptxas.write_text("12.8")
        self.knobs: Any = ModuleType("triton.knobs")
        self.knobs.NvidiaTool = Tool
        self.knobs.nvidia = SimpleNamespace(mock_ptx_version=None)
        self.compiler: Any = ModuleType("triton.backends.nvidia.compiler")
        vars(self.compiler).update(
            knobs=self.knobs,
            get_ptxas=lambda arch: self.knobs.NvidiaTool.from_path(str(self.ptxas)),
            get_ptxas_version=self._version,
        )
        self.driver: Any = ModuleType("triton.backends.nvidia.driver")
        self.driver.libcuda_dirs = self._directories
        self.directories = [str(folder)]

    def _version(self, arch: int) -> str:
        Triton.asked += 1
        return f"ptxas {self.ptxas.read_text()}"

    def _directories(self) -> list[str]:
        Triton.asked += 1
        return self.directories


@pytest.fixture
def triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Triton:
    """Watched, on a machine that remembers nothing yet."""
    monkeypatch.setattr(answers, "_hook", lambda: None)
    monkeypatch.setattr(answers._Kept, "folder", None)
    monkeypatch.setattr(remembered, "_known", {})
    monkeypatch.setattr(answers, "_LOADER", str(tmp_path / "ld.so.cache"))
    monkeypatch.setattr(Triton, "asked", 0)
    monkeypatch.setattr(Tool, "from_path", staticmethod(Tool.from_path))  # wrapped for a test only
    (tmp_path / "ld.so.cache").write_text("")
    (tmp_path / "libcuda.so.1").write_text("")
    found = Triton(tmp_path)
    answers._watch_tools(found.knobs)
    answers._watch_ptxas(found.compiler)
    answers._watch_driver(found.driver)
    answers.keep_answers(tmp_path / "records")
    return found


def ask(triton: Triton) -> tuple[str, Tool | None, list[str]]:
    """What a new process is told."""
    remembered._known.clear()
    return (
        triton.compiler.get_ptxas_version(90),
        triton.compiler.get_ptxas(90),
        triton.driver.libcuda_dirs(),
    )


def test_it_is_asked_once(triton: Triton) -> None:
    """By the first process; the next is told the same."""
    first = ask(triton)
    assert first == ("ptxas 12.8", Tool(str(triton.ptxas), "12.8"), triton.directories)
    asked = Triton.asked
    assert asked > 0
    assert ask(triton) == first
    assert Triton.asked == asked


def test_another_ptxas(triton: Triton) -> None:
    """Is asked for its own version."""
    ask(triton)
    triton.ptxas.write_text("13.0")
    version, tool, _ = ask(triton)
    assert (version, tool) == ("ptxas 13.0", Tool(str(triton.ptxas), "13.0"))


def test_a_ptxas_that_is_not_there(triton: Triton) -> None:
    """Is no tool, and comes to nothing that would be remembered."""
    assert triton.knobs.NvidiaTool.from_path("nowhere") is None


@pytest.mark.parametrize("setting", answers._SETTINGS)
def test_another_place_of_the_driver(
    triton: Triton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """After ldconfig has run, and where a variable counts."""
    ask(triton)
    (tmp_path / "ld.so.cache").write_text("another")
    asked = Triton.asked
    triton.driver.libcuda_dirs()
    assert Triton.asked == asked + 1
    monkeypatch.setenv(setting, "/elsewhere")
    triton.driver.libcuda_dirs()
    assert Triton.asked == asked + 2


def test_a_driver_that_has_gone(triton: Triton, tmp_path: Path) -> None:
    """Is looked for, whatever is remembered."""
    ask(triton)
    (tmp_path / "libcuda.so.1").unlink()
    asked = Triton.asked
    triton.driver.libcuda_dirs()
    assert Triton.asked == asked + 1


def test_a_version_for_tests(triton: Triton) -> None:
    """A Triton that pretends a version asks no ptxas, and is not answered for."""
    ask(triton)
    triton.knobs.nvidia.mock_ptx_version = "1"
    asked = Triton.asked
    triton.compiler.get_ptxas_version(90)
    assert Triton.asked == asked + 1


def test_without_a_folder_it_is_asked(triton: Triton) -> None:
    """Watching changes nothing by itself."""
    answers._Kept.folder = None
    ask(triton)
    asked = Triton.asked
    ask(triton)
    assert Triton.asked == 2 * asked


@pytest.mark.parametrize(
    ("watch", "module", "missing"),
    [
        ("_watch_tools", "knobs", "NvidiaTool"),
        ("_watch_ptxas", "compiler", "get_ptxas"),
        ("_watch_ptxas", "compiler", "get_ptxas_version"),
        ("_watch_driver", "driver", "libcuda_dirs"),
    ],
)
def test_another_triton(tmp_path: Path, watch: str, module: str, missing: str) -> None:
    """One that asks in another way is left as it is."""
    found = getattr(Triton(tmp_path), module)
    delattr(found, missing)
    before = dict(vars(found))
    getattr(answers, watch)(found)
    assert vars(found) == before


REAL = """
import sys
from pathlib import Path
from cachesvc.runtime.answers import keep_answers

started = []
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)
keep_answers(Path(sys.argv[1]))
from triton.backends.nvidia.compiler import get_ptxas, get_ptxas_version
print(get_ptxas_version(90), get_ptxas(90))
print(len(started), file=sys.stderr)
"""


@pytest.mark.skipif(not TRITON.is_dir(), reason="`make .venv/.triton` unpacks Triton")
def test_tritons_own_ptxas(tmp_path: Path) -> None:
    """The second process says what the first did, and runs nothing."""
    told = [
        subprocess.run(
            [sys.executable, "-c", REAL, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(TRITON)},
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert told[0].stdout == told[1].stdout
    assert "release 12.8" in told[0].stdout
    assert [done.stderr.strip() for done in told] == ["2", "0"]
