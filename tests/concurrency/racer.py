"""Runs scripts at once, each in a fork of this process, which has imported what they use.

Each line read is a JSON object with `scripts`, what each is `given`, and their `env`; the answer is
a line with the result of each, or its traceback. No script begins before all forks are there, and
none outlives its patience: that is the only clock.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import tempfile
import traceback
from typing import Any

import cachesvc
import cachesvc.start.collect
import cachesvc.start.collect_live
import cachesvc.start.pull
import cachesvc.start.push
import cachesvc.start.verify  # noqa: F401 - imported for the forks

PATIENCE_S = 120


def forked(script: str, given: Any, env: dict[str, str], gate: tuple[int, int]) -> tuple[int, int]:
    """A fork that runs a script once the gate is closed; its id, and where its result comes."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    status, told = 1, {}
    try:
        signal.alarm(PATIENCE_S)
        os.close(gate[1])
        os.environ.update(env)
        tempfile.tempdir = None
        os.read(gate[0], 1)
        names = {"given": given, "result": None}
        exec(script, names)
        atexit._run_exitfuncs()
        status, told = 0, {"result": names["result"]}
    except BaseException:
        told = {"error": traceback.format_exc()}
    finally:
        with os.fdopen(writes, "w") as pipe:
            json.dump(told, pipe)
        os._exit(status)


def ran(scripts: list[str], given: list[Any], env: list[dict[str, str]]) -> list[dict[str, Any]]:
    gate = os.pipe()
    forks = [forked(*each, gate) for each in zip(scripts, given, env, strict=True)]
    os.close(gate[1])
    found = []
    for child, reads in forks:
        with os.fdopen(reads) as pipe:
            text = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found.append({"code": code, **json.loads(text or "{}")})
    os.close(gate[0])
    return found


def main() -> None:
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        print(json.dumps(ran(**json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
