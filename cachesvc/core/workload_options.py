"""What a caller asks of a workload's function: size, training, lengths."""

from __future__ import annotations

from dataclasses import dataclass

from cachesvc.core.digest import Json
from cachesvc.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Given to a workload's function by keyword, each only if the caller asked for it.

    `size` is a word that the workload knows (those that come with this library: tiny, small,
    large). `shapes` are the lengths of its calls, one call for each: batch sizes, or tokens of a
    prompt. With `train` its calls are training steps.
    """

    size: str | None = None
    shapes: tuple[int, ...] = ()
    train: bool = False

    def __post_init__(self) -> None:
        if any(length < 1 for length in self.shapes):
            raise UsageError(f"the shapes {self.shapes} are none: each is a positive length")

    def arguments(self) -> dict[str, object]:
        """The keyword arguments that the caller asked for."""
        asked: dict[str, object] = {}
        if self.size is not None:
            asked["size"] = self.size
        if self.shapes:
            asked["shapes"] = self.shapes
        if self.train:
            asked["train"] = True
        return asked

    def to_json(self) -> dict[str, Json]:
        return {"size": self.size, "shapes": list(self.shapes), "train": self.train}
