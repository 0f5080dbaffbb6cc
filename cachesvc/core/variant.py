"""A way of compiling a workload: what a bench varies."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cachesvc.core.digest import Json
from cachesvc.core.errors import UsageError

DEFAULT_MODE = "default"
MODES = (DEFAULT_MODE, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True, slots=True)
class Variant:
    """How `torch.compile` is asked: a mode, or options of the backend by name, never both.

    `dynamic` is None where the compiler is to find out which sizes change. With `regions` the
    repeated blocks of a module are compiled instead of the whole.
    """

    mode: str = DEFAULT_MODE
    options: tuple[tuple[str, Json], ...] = ()
    dynamic: bool | None = None
    regions: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"there is no mode {self.mode}: choose one of {', '.join(MODES)}")
        if self.options and self.mode != DEFAULT_MODE:
            raise UsageError(f"torch takes a mode ({self.mode}) or options, not both")

    @property
    def label(self) -> str:
        """`default`, `max-autotune+regions`, `epilogue_fusion=false+dynamic`."""
        told = ",".join(f"{name}={json.dumps(value)}" for name, value in self.options)
        parts = [told or self.mode]
        if self.regions:
            parts.append("regions")
        if self.dynamic is not None:
            parts.append("dynamic" if self.dynamic else "static")
        return "+".join(parts)

    def arguments(self) -> dict[str, Json]:
        """The keyword arguments of `torch.compile`: none for the default."""
        arguments: dict[str, Json] = {}
        if self.mode != DEFAULT_MODE:
            arguments["mode"] = self.mode
        if self.options:
            arguments["options"] = dict(self.options)
        if self.dynamic is not None:
            arguments["dynamic"] = self.dynamic
        return arguments

    def to_json(self) -> dict[str, Json]:
        return {
            "label": self.label,
            "mode": self.mode,
            "options": dict(self.options),
            "dynamic": self.dynamic,
            "regions": self.regions,
        }
