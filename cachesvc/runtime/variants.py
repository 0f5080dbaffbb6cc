"""A workload compiled as a variant says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cachesvc.core.errors import UsageError
from cachesvc.core.regions import Regions
from cachesvc.core.variant import Variant
from cachesvc.runtime.calls import reaches_compiled
from cachesvc.runtime.regions import compile_regions
from cachesvc.runtime.workloads import Workload


@dataclass
class Compiler:
    """Compiles as a variant says; without one it gives back what it is given, to run eagerly.

    A workload's function that compiles by itself is given this, to use in place of
    `torch.compile`. `was_used` tells whether it did, `regions` what was chosen as such.
    """

    variant: Variant | None
    was_used: bool = field(default=False, init=False)
    regions: list[Regions] = field(default_factory=list, init=False)

    def __call__(self, target: Any) -> Any:
        self.was_used = True
        if self.variant is None:
            return target
        if self.variant.regions and isinstance(target, torch.nn.Module):
            return self._regionally(target, self.variant.arguments())
        compile_: Callable[..., Any] = torch.compile
        return compile_(target, **self.variant.arguments())

    def applied(self, workload: Workload) -> Workload:
        """The workload with its model compiled, unless its function has used this already.

        Raises UsageError for a workload that compiles by itself and has not.
        """
        if self.was_used or self.variant in (None, Variant()):
            return workload
        if reaches_compiled(workload.model) or any(map(callable, workload.calls)):
            raise UsageError(
                f"{workload.name} compiles by itself, so nothing else than torch's defaults can be"
                " asked for: give its function a parameter `compile`, and call that in place of"
                " torch.compile"
            )
        return replace(workload, model=self(workload.model))

    def _regionally(self, module: torch.nn.Module, arguments: dict[str, Any]) -> torch.nn.Module:
        """Raises UsageError where no block is repeated: the label would not be true."""
        regions = compile_regions(module, **arguments)
        if not regions.kinds:
            raise UsageError(f"there are no regions to compile: {regions}")
        self.regions.append(regions)
        return module
