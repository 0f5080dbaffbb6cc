"""Captures a family's call, in a process of its own.

python -m benchmarks.probes.record FAMILY FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from benchmarks.probes.families import FAMILIES
from cachesvc.runtime.aot.recorder import Recorder

GROUP = "probes"


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    family = next(family for family in FAMILIES if family.name == name)
    model = family.model()
    recorder = Recorder(folder, GROUP)
    with torch.no_grad():
        args, kwargs = family.call(model)
        recorder.put({"": model})
        model(*args, **kwargs)
    print(*recorder.reasons, sep="\n")
    print(len(recorder.units), "captured")


if __name__ == "__main__":
    main()
