"""Scripts in processes that have compiled nothing, each with directories of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# A second or two for each compile instead of ten: no worker processes, no precompiled header, no
# test of the vector instructions. What tests of these themselves need, they unset.
QUICK = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "OMP_NUM_THREADS": "1",
}

PRELUDE = "import os, sys, torch, cachesvc\nfrom tiny_models import *\n"


class FreshProcesses:
    """Runs scripts; each finds `given`, and leaves a JSON value in `result`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = itertools.count()
        self._server: subprocess.Popen[str] | None = None

    def run(
        self,
        script: str,
        *,
        given: Mapping[str, Any] | None = None,
        env: Mapping[str, str | None] | None = None,
        home: Path | None = None,
        cwd: Path | None = None,
        own: bool = False,
        prelude: str = PRELUDE,
    ) -> Any:
        """The result of a script; AssertionError with what it printed if it failed.

        `home` is the library's own directory, a new one unless given, and so is TMPDIR, where torch
        puts what nobody has a place for; None in `env` takes a variable away. With `own` an
        interpreter of its own runs it, which flags that torch reads at its import need; else a
        fork of one that has imported torch and its compiler.
        """
        output = self._folder / str(next(self._number))
        (output / "tmp").mkdir(parents=True)
        places = {"TCCACHE_HOME": str(home or output / "home"), "TMPDIR": str(output / "tmp")}
        changes = {**places, **(env or {})}
        merged = {**_inherited(), **changes}
        spec = {
            "script": prelude + script,
            "given": {name: _plain(value) for name, value in (given or {}).items()},
            "env": {name: value for name, value in merged.items() if value is not None},
            "cwd": str(cwd or output),
            "output": str(output),
        }
        file = output / "spec.json"
        file.write_text(json.dumps(spec))
        status = self._own(file, spec["env"]) if own else self._forked(file)
        printed = (output / "printed").read_text()
        assert status == 0, f"the script failed ({status}):\n{printed}"
        return json.loads((output / "result.json").read_text())

    def _own(self, spec: Path, env: Mapping[str, str]) -> int:
        with open(spec.parent / "printed", "w") as printed:
            command = [sys.executable, str(HERE / "child.py"), str(spec)]
            return subprocess.run(
                command, env=env, stdout=printed, stderr=printed, check=False
            ).returncode

    def _forked(self, spec: Path) -> int:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, str(HERE / "child.py")],
                env=_inherited(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._answer() == "ready"
        assert self._server.stdin is not None
        print(spec, file=self._server.stdin, flush=True)
        return int(self._answer())

    def _answer(self) -> str:
        assert self._server is not None
        assert self._server.stdout is not None
        return self._server.stdout.readline().strip()

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()


def _inherited() -> dict[str, str]:
    """The environment without what torch has set in this process."""
    kept = {n: value for n, value in os.environ.items() if n != "TORCHINDUCTOR_CACHE_DIR"}
    return {**kept, **QUICK, "PYTHONPATH": str(HERE)}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
