"""A workload compiled as a variant says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cachesvc.core.errors import UsageError
from cachesvc.core.variant import Variant
from cachesvc.runtime.calls import reaches_compiled
from cachesvc.runtime.regions import compile_regions
from cachesvc.runtime.workloads import Workload, told


@dataclass
class Compiler:
    """Compiles as a variant says; without one it gives back what it is given, to run eagerly.

    A workload's function that compiles by itself is given this, to use in place of
    `torch.compile`. `was_used` tells whether it did; `notes` say what was chosen as regions, or
    that the workload has compiled by itself.
    """

    variant: Variant | None
    was_used: bool = field(default=False, init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def __call__(self, target: Any) -> Any:
        self.was_used = True
        if self.variant is None:
            return target
        if self.variant.regions and isinstance(target, torch.nn.Module):
            return self._regionally(target, self.variant.arguments())
        compile_: Callable[..., Any] = torch.compile
        try:
            return compile_(target, **self.variant.arguments())
        except (TypeError, RuntimeError, ValueError, AssertionError) as error:
            raise UsageError(
                f"torch.compile refuses {self.variant.label}: {told(error)}"
            ) from error

    def applied(self, workload: Workload) -> Workload:
        """The workload with its model compiled, unless its function has done that.

        Raises UsageError for a workload that compiles by itself, and not with this, and for one
        without regions: the label would not be true.
        """
        if self.variant is None:
            return workload
        compiles = reaches_compiled(workload.model) or any(map(callable, workload.calls))
        if compiles and not self.was_used:
            self._check_default(workload)
        elif not compiles and self.variant != Variant():
            workload = replace(workload, model=self(workload.model))
        if self.variant.regions and not self.notes:
            raise UsageError(f"{workload.name} compiles no module, so it has no regions")
        return workload

    def _check_default(self, workload: Workload) -> None:
        if self.variant != Variant():
            raise UsageError(
                f"{workload.name} compiles by itself, so nothing else than torch's defaults can be"
                " asked for: give its function a parameter `compile`, and call that in place of"
                " torch.compile"
            )
        self.notes.append("the workload compiles by itself: its own mode and options hold")

    def _regionally(self, module: torch.nn.Module, arguments: dict[str, Any]) -> torch.nn.Module:
        """Raises UsageError where no block is repeated."""
        regions = compile_regions(module, **arguments)
        if not regions.kinds:
            raise UsageError(f"there are no regions to compile: {regions}")
        self.notes.append(str(regions))
        return module
