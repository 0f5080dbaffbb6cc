"""Functions compiled ahead of time in stores, put there without a whole build."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .conftest import Starts

TARGETS = Path(__file__).parent / "targets"

CAPTURE = f"""
import shutil
sys.path.insert(0, {str(TARGETS)!r})
from ahead_targets import Block, Numbered, Stack
from pathlib import Path
from cachesvc.start.target import named_models, target

def capture(model, calls, label):
    "Publishes functions for these calls of a model that is not compiled; their keys, and reasons."
    from cachesvc.runtime.aot.recorder import Recorder
    goal = target(model, label=label)
    recorder = Recorder(Path(given["captured"]) / label, goal.model.digest[:16])
    recorder.put(named_models(model))
    with torch.no_grad():
        for call in calls:
            call()
    add(model, label, recorder.root)
    return [recorder.units, recorder.reasons]

def add(model, label, folder):
    "Publishes the functions in a directory."
    from cachesvc.runtime.context import read_context
    from cachesvc.start.goods import from_trees
    from cachesvc.start.publishing import facts_of, publish_goods
    from cachesvc.start.settings import open_repository
    from cachesvc.start.trees import Trees
    goal = target(model, label=label)
    goods = lambda: from_trees(Trees(aot=folder), read_context())
    publish_goods(open_repository(given["store"], None), goal, facts_of(goal), goods)

def right(model, plain, *sizes):
    "Whether a model gives what another one gives as it was written."
    with torch.no_grad():
        return all(torch.allclose(model(ones(n, 4)), plain(ones(n, 4))) for n in sizes)
"""


@dataclass(frozen=True)
class Captures:
    """A store with functions, `bare` is the same without them; `captured` are their directories.

    `units` and `reasons` are by label.
    """

    store: Path
    bare: Path
    captured: Path
    units: dict[str, list[str]]
    reasons: dict[str, list[str]]

    def copy(self, folder: Path) -> Path:
        """The store once more, for who writes to it."""
        return Path(shutil.copytree(self.store, folder / "store"))


def captures(starts: Starts, folder: Path, script: str) -> Captures:
    """Runs a script that may publish directories and call `captured_now()`, and gives what
    `capture` gave by label."""
    store, bare, captured = (folder / name for name in ("store", "bare", "captured"))
    keep = "\ndef captured_now():\n    shutil.copytree(given['store'], given['bare'])\n"
    found: dict[str, Any] = starts.run(
        CAPTURE + keep + script, store=store, given={"bare": bare, "captured": captured}
    )
    units = {label: units for label, (units, _) in found.items()}
    reasons = {label: reasons for label, (_, reasons) in found.items()}
    return Captures(store, bare, captured, units, reasons)
