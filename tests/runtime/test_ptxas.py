"""Triton kernels are found under the key of either ptxas."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cachesvc.runtime import ptxas

OWN, OTHER = "ptxas: release 12.8\n", "ptxas: release 13.0\n"


class _Backend:
    def hash(self) -> str:
        return f"{OWN}-90"


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Triton's function, watched; torch's ptxas is another one than Triton's."""
    triton = ModuleType("triton.compiler.compiler")

    def get_cache_key(src: str, backend: _Backend, backend_options: str, env_vars: Any) -> str:
        return f"3.6-files-{src}-{backend.hash()}-{backend_options}-{sorted(env_vars.items())}"

    triton.get_cache_key = get_cache_key  # type: ignore[attr-defined]
    monkeypatch.setattr(ptxas, "_versions", lambda: (OTHER, OWN))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    ptxas._watch(triton)
    return lambda: triton.get_cache_key("src", _Backend(), "options", env_vars={"a": 1})


def _key(version: str) -> str:
    return f"3.6-files-src-{version}-90-options-[('a', 1)]"


def _store(folder: Path, key: str) -> None:
    digest = hashlib.sha256(key.encode()).digest()
    (folder / base64.b32encode(digest).decode().rstrip("=")).mkdir()


def test_nothing_is_there(lookup: Any) -> None:
    """It is built under Triton's own key, as it would be without us."""
    assert lookup() == _key(OWN)


def test_a_worker_has_built_it(lookup: Any, tmp_path: Path) -> None:
    """With torch's ptxas: that entry is used."""
    _store(tmp_path, _key(OTHER))
    assert lookup() == _key(OTHER)


def test_its_own_comes_first(lookup: Any, tmp_path: Path) -> None:
    """Where both lie there."""
    for version in (OWN, OTHER):
        _store(tmp_path, _key(version))
    assert lookup() == _key(OWN)


def test_without_a_directory(lookup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be looked for, so nothing changes."""
    monkeypatch.delenv("TRITON_CACHE_DIR")
    assert lookup() == _key(OWN)


def test_another_triton() -> None:
    """A module without that function is left as it is."""
    ptxas._watch(ModuleType("triton.compiler.compiler"))


def test_a_ptxas_that_is_not_there(tmp_path: Path) -> None:
    """Says nothing of itself; so does a file that is no program."""
    assert ptxas._version(tmp_path / "ptxas") == ""
    (tmp_path / "ptxas").write_text("no program")
    assert ptxas._version(tmp_path / "ptxas") == ""


KEYS = """
import json
from cachesvc.runtime.ptxas import _others
from triton.runtime.cache import get_cache_key

class Part:
    def __init__(self, text):
        self.text = text

    def hash(self):
        return self.text

def key(version):
    return get_cache_key(Part("src"), Part(f"{version}-90"), Part("options"), {"A": "1"})

import cachesvc.runtime.ptxas as ptxas
ptxas._versions = lambda: ("release 12.8", "release 13.0")
found = _others(key("release 12.8"), "release 12.8-90")
print(json.dumps(found == [key("release 13.0")]))
"""


def test_tritons_own_keys() -> None:
    """The real function puts the version where we change it."""
    triton = Path(__file__).parents[2] / ".venv" / "triton"
    done = subprocess.run(
        [sys.executable, "-c", KEYS],
        env={**os.environ, "PYTHONPATH": str(triton)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("true", 0), done.stderr
