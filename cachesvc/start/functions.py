"""The functions that a start has from a bundle: put into the models, or told why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.local.places import Places
from cachesvc.start.clock import now
from cachesvc.start.target import Target, chosen_salt, named_models

_PATIENCE_S = 1.0  # inside a call of the model


@dataclass
class Functions:
    """The functions of one start; `units` are the keys of those in use, `aside` of those that have
    failed, each with the reason.

    One that fails, at its load or at any later call, is set aside on this machine, so that the
    next start does without it.
    """

    model: Any
    goal: Target
    salt: str | None
    places: Places
    units: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    aside: dict[str, str] = field(default_factory=dict)

    def load(self, units: tuple[str, ...], missed: Callable[[], None]) -> None:
        """Arms the models with these units, which lie in the live directory.

        `missed` is called before a call that may have to be compiled.
        """
        from cachesvc.runtime.aot.arm import arm

        folders = [self.places.locate(f"{unit}/function.json") for unit in units]
        armed = arm(
            named_models(self.model),
            self.goal.readings,
            [file.parent for file in folders if file is not None],
            salt=chosen_salt(self.salt),
            failed=self._failed,
            missed=missed,
        )
        self.units = armed.units
        self.notes += armed.reasons
        for unit, reason in armed.damaged.items():
            self._set_aside(unit, reason)

    def unload(self) -> None:
        """Gives the models back their own calls."""
        from cachesvc.runtime.aot.arm import disarm

        disarm(named_models(self.model))
        self.units = ()

    def _failed(self, unit: str, reason: str) -> None:
        self.notes.append(f"{unit} has failed and is not used any more: {reason}")
        self.units = tuple(other for other in self.units if other != unit)
        self._set_aside(unit, reason)

    def _set_aside(self, unit: str, reason: str) -> None:
        from cachesvc.local.quarantine import set_aside

        self.aside[unit] = reason
        try:
            set_aside(self.places, {unit: reason}, at=now(), patience_s=_PATIENCE_S)
        except TccacheError as error:  # a full disk must not keep anybody from serving
            self.notes.append(f"{unit} could not be set aside: {error}")
