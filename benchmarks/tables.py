"""Tables of docs/benchmarks.md out of what `tccache bench --json` printed.

python -m benchmarks.tables FILE...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER = (
    "| start | samples | first call, s | process to result, s | verdict | compiled | native builds"
    " | steady call, ms | {unit} a second | peak memory, MB | pays from call |"
)


def main() -> None:
    for file in sys.argv[1:]:
        told = json.loads(Path(file).read_text())
        print(f"    {told['command']}\n")
        for label, trial in told["variants"].items():
            print("\n".join(_lines(label, trial, told["unit"])), end="\n\n")


def _lines(label: str, trial: dict[str, Any], unit: str) -> Iterator[str]:
    bundle = trial["bundle"]
    yield f"{label}, {bundle['bytes'] / 1000:.0f} kB published:" if bundle else f"{label}:"
    yield ""
    yield HEADER.format(unit=unit)
    yield "|" + "---|" * HEADER.count(" | ") + "---|"
    for name, arm in trial["arms"].items():
        yield f"| {' | '.join(_cells(name, arm))} |"


def _cells(name: str, arm: dict[str, Any]) -> Iterator[str]:
    yield name
    yield str(len(arm["samples"]))
    yield _spread(arm["first_call_s"], 1, 2)
    yield _spread(arm["startup_s"], 1, 2)
    yield arm["verdict"]
    yield str(arm["compiled"])
    yield str(arm["native_builds"])
    yield "" if arm["steady_s"] is None else _spread(arm["steady_s"], 1000, 2)
    rate = arm["throughput_per_s"]
    yield "" if rate is None else f"{rate:,.0f}"
    yield "" if arm["peak_bytes"] is None else f"{arm['peak_bytes'] / 1e6:,.0f}"
    yield _pays(arm["break_even_call"])


def _spread(told: dict[str, Any], scale: float, digits: int) -> str:
    median, least, most = (told[key] * scale for key in ("median", "min", "max"))
    alone = f"{median:.{digits}f}"
    return alone if least == most else f"{alone} ({least:.{digits}f} to {most:.{digits}f})"


def _pays(told: dict[str, Any] | None) -> str:
    if told is None:
        return ""
    about = "" if told["certain"] else "about "
    call, whole = (
        "never" if told[key] is None else f"{about}{told[key]:,}"
        for key in ("first_call", "startup")
    )
    return f"{call}; process: {whole}"


if __name__ == "__main__":
    main()
