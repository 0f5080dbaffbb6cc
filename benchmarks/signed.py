"""What it costs to trust keys instead of a whole store.

    python -m benchmarks.signed [--runs 15] [--json FILE]

The same signed bundle in a local store, pulled in turn by fresh processes that trust the store and
that trust the key: into an empty live directory, and again where all lies in place. Seconds are
those of `cachesvc.pull(...)` alone; what it imports counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cachesvc
from benchmarks.pairs import Figures, in_turn, ratio

UNITS = 40
BYTES_EACH = 50_000
PULL = """
import sys, time, cachesvc
started = time.perf_counter()
pulled = cachesvc.pull("signed", store=sys.argv[1], trust=sys.argv[2])
print(time.perf_counter() - started, pulled.transfer.seeded, pulled.transfer.in_place)
"""


class Pulls:
    """Pulls of one bundle by processes that trust somebody."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        tree, key = scratch / "tree", scratch / "key"
        for number in range(UNITS):
            unit = tree / "fxgraph" / f"{number:02}" / f"f{number:02}"
            unit.mkdir(parents=True)
            (unit / "entry").write_bytes(os.urandom(BYTES_EACH))
        made = cachesvc.make_key(key)
        self._store = scratch / "store"
        self.trusts = {"the store": "store", "a key": str(made.public_file)}
        cachesvc.push("signed", store=self._store, sign_with=key, inductor_dir=tree)

    def first_s(self, whom: str, run: int) -> float:
        """Into an empty live directory."""
        shutil.rmtree(self._home(whom), ignore_errors=True)
        return self._pull_s(whom, (UNITS, 0))

    def again_s(self, whom: str, run: int) -> float:
        """Where all of it lies in place."""
        return self._pull_s(whom, (0, UNITS))

    def _home(self, whom: str) -> Path:
        return self._scratch / whom.replace(" ", "-")

    def _pull_s(self, whom: str, expected: tuple[int, int]) -> float:
        command = [sys.executable, "-c", PULL, str(self._store), self.trusts[whom]]
        environ = {**os.environ, "TCCACHE_HOME": str(self._home(whom))}
        said = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        seconds, seeded, in_place = said.stdout.split()
        if (int(seeded), int(in_place)) != expected:
            sys.exit(f"a pull by {whom} did other work than it should: {said.stdout}")
        return float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tccache-bench-") as name:
        pulls = Pulls(Path(name))
        store, key, store_again, key_again = in_turn(
            options.runs,
            lambda run: pulls.first_s("the store", run),
            lambda run: pulls.first_s("a key", run),
            lambda run: pulls.again_s("the store", run),
            lambda run: pulls.again_s("a key", run),
        )
    rows = {"first": (store, key), "in place": (store_again, key_again)}
    print(f"| pull of {UNITS} units | trusts the store, s | trusts a key, s | ratio |")
    print("|---|---|---|---|")
    for row, (all_of_it, signed) in rows.items():
        print(f"| {row} | {all_of_it} | {signed} | {ratio(signed, all_of_it)} |")
    if options.json:
        options.json.write_text(json.dumps({row: _told(*arms) for row, arms in rows.items()}))


def _told(store: Figures, key: Figures) -> dict[str, object]:
    return {"store": store.to_json(), "key": key.to_json()}


if __name__ == "__main__":
    main()
