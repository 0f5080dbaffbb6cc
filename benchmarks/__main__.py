"""Every benchmark that needs no GPU, one after the other."""

from __future__ import annotations

import subprocess
import sys

NAMES = ("overhead", "transfer", "memory", "digest", "hf", "overlap")


def main() -> None:
    for name in NAMES:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
    print("== demo", flush=True)
    subprocess.run([sys.executable, "-m", "tccache", "demo", "--runs", "3"], check=True)


if __name__ == "__main__":
    main()
