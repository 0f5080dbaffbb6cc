"""What has been looked up for a function once, and holds until something moves."""

from __future__ import annotations

from dataclasses import dataclass

from cachesvc.runtime.aot.paths import Paths

MOST_CHANGES = 3
"""How often in a row what a function takes for constant may move before it is looked up anew at
each call."""


@dataclass
class Settled:
    """The state of one function since its constants were looked up.

    `epoch` counts the readings of the model; `paths` is None where they move at each call;
    `is_misfit` says that they were others than the function was compiled for.
    """

    epoch: int
    paths: Paths | None
    changes: int = 0
    is_misfit: bool = False

    def is_whole(self, epoch: int) -> bool:
        """Whether what was found still holds."""
        if self.epoch != epoch or self.paths is None or not self.paths.are_whole():
            return False
        self.changes = 0
        return True

    def changes_next(self, epoch: int) -> int:
        """How often it will have moved in a row when it is looked up again now."""
        return self.changes + 1 if self.epoch == epoch else 0
