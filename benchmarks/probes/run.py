"""Makes the probes of one family, and writes their outcomes.

python -m benchmarks.probes.run FAMILY FOLDER OUTPUT [PROBE]
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.probes import calls, changes
from benchmarks.probes.families import FAMILIES, Family
from benchmarks.probes.generated import generated
from benchmarks.probes.record import GROUP
from benchmarks.probes.trial import Bench, Outcome, Probe


def main() -> None:
    name, folder, output, *wanted = sys.argv[1:]
    warnings.simplefilter("ignore")
    family = next(family for family in FAMILIES if family.name == name)
    bench = Bench(family, sorted(Path(folder, GROUP).iterdir()))
    outcomes: list[dict[str, Any]] = []
    for probe in probes(family):
        if not wanted or probe.name in wanted:
            for outcome in bench.outcomes(probe):
                outcomes.append(_told(outcome))
                if wanted or outcome.is_wrong or outcome.is_missed:
                    print(_shown(outcome), flush=True)
    Path(output).write_text(json.dumps(outcomes, indent=1))


def probes(family: Family) -> Iterator[Probe]:
    """All that make sense for a family."""
    yield from changes.PROBES
    yield from calls.PROBES
    if family.name == "odd":
        from benchmarks.probes import odd_probes

        yield from odd_probes.PROBES
    yield from generated(family.model())


def _told(outcome: Outcome) -> dict[str, Any]:
    return {
        "probe": outcome.probe,
        "moment": outcome.moment,
        "way": outcome.way,
        "right": outcome.right,
        "effect": outcome.effect,
        "wrong": outcome.is_wrong,
        "missed": outcome.is_missed,
    }


def _shown(outcome: Outcome) -> str:
    said = "WRONG" if outcome.is_wrong else "MISSED" if outcome.is_missed else ""
    effect = "" if outcome.effect else " (no effect)"
    right = "" if outcome.right else " (differs)"
    return (
        f"{said:7}{outcome.family}: {outcome.probe}, {outcome.moment}: {outcome.way}{right}{effect}"
    )


if __name__ == "__main__":
    main()
