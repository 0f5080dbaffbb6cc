"""What runs in a process of a test: a script that leaves its `result`.

    python child.py SPEC          an interpreter of its own
    python child.py               serves SPECs, one a line, each in a fork of this process

SPEC is a JSON file: script, given, env, cwd, output (the folder for result.json and what is
printed). The serving process has imported torch and its compiler and has compiled nothing, so
that a fork of it is as fresh as an interpreter of its own, seconds sooner.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

IMPORTED = ("torch", "torch._dynamo", "torch._inductor.compile_fx", "tiny_models")


def run(spec: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(spec["env"])
    tempfile.tempdir = None
    os.chdir(spec["cwd"])
    scope: dict[str, Any] = {"__name__": "script", "given": spec["given"], "result": None}
    # Opened first: a script may give up the right to do so.
    with open(Path(spec["output"]) / "result.json", "w") as result:
        exec(compile(spec["script"], "script", "exec"), scope)
        json.dump(scope["result"], result)


def serve() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    _probe_no_more_instructions()
    _answer("ready")
    for line in sys.stdin:
        _answer(_forked(json.loads(Path(line.strip()).read_text())))


def _probe_no_more_instructions() -> None:
    """Inductor builds a library for each extension of AVX-512 that this CPU has: on all CPUs a
    test builds the same."""
    import torch

    for extension in ("avx512_bf16", "vnni", "amx_tile"):
        setattr(torch.cpu, f"_is_{extension}_supported", lambda: False)


def _answer(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def _forked(spec: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        printed = os.open(Path(spec["output"]) / "printed", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(printed, stream)
        run(spec)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(json.loads(Path(sys.argv[1]).read_text()))
    else:
        serve()
