"""Arming a model: its calls are dispatched to the functions that a bundle has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.boundary import Boundary, boundaries, has_hooks
from cachesvc.runtime.aot.dispatch import Dispatcher, Watched
from cachesvc.runtime.aot.files import Stored, read, unit_of
from cachesvc.runtime.aot.function import Function
from cachesvc.runtime.aot.pins import Pins
from cachesvc.runtime.aot.settings import context_difference, deciding_context
from cachesvc.runtime.model import Reading

Failed = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Armed:
    """What came of it: the keys of the units in use, and why others are not.

    `damaged` are those that should have worked here and did not.
    """

    units: tuple[str, ...] = ()
    damaged: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def arm(
    models: Mapping[str, Any],
    readings: Mapping[str, Reading],
    folders: Iterable[Path],
    *,
    salt: str,
    failed: Failed,
    missed: Callable[[], None],
) -> Armed:
    """Puts dispatchers into these models, by their names, for the functions in these folders.

    `readings` are what the models' digests were made of, with `salt` where there is one model
    alone. `failed` is told, at any later time, which unit has failed and how; `missed` is called
    once before the first call that may have to be compiled. Whatever cannot be loaded is left out,
    with the reason; a model without any function stays as it is.
    """
    disarm(models)  # a start before this one may have armed them
    stored, damaged = _read(folders)
    units: list[str] = []
    reasons: list[str] = []
    for name, model in models.items():
        salted = salt if name == "" else ""
        arming = _Arming(model, readings[name], salted, failed, missed)
        units += arming.arm([item for item in stored if item.facts["part"] == name])
        reasons += arming.reasons
        damaged |= arming.damaged
    told = (f"{unit} is not used: {reason}" for unit, reason in damaged.items())
    return Armed(tuple(units), damaged, tuple(dict.fromkeys((*reasons, *told))))


def disarm(models: Mapping[str, Any]) -> None:
    """Takes all dispatchers out of these models again."""
    for model in models.values():
        for boundary in boundaries(model):
            found = call = boundary.holder.__dict__.get(boundary.attribute)
            while isinstance(call, Dispatcher):
                call = call.replaced
            if call is not found:
                boundary.put(call)


def _read(folders: Iterable[Path]) -> tuple[list[Stored], dict[str, str]]:
    found, unread = [], {}
    for folder in folders:
        try:
            found.append(read(folder))
        except TccacheError as error:
            unread[unit_of(folder)] = str(error)
    return found, unread


class _Arming:
    """One model being armed."""

    def __init__(
        self,
        model: Any,
        reading: Reading,
        salt: str,
        failed: Failed,
        missed: Callable[[], None],
    ) -> None:
        self._model, self._reading, self._salt = model, reading, salt
        self._failed = failed
        self._missed = missed
        self._pins = Pins(reading)
        self._context = deciding_context()
        self.reasons: list[str] = []
        self.damaged: dict[str, str] = {}

    def arm(self, stored: list[Stored]) -> Iterator[str]:
        """The keys of the units that are in use now."""
        if not stored:
            return
        places = boundaries(self._model)
        if not places:
            self.reasons.append("a compiled function cannot be replaced in place: give the module")
        loaded = [(place, list(self._functions(place, stored))) for place in places]
        if not any(functions for _, functions in loaded):
            return
        watched = Watched(self._model, self._salt, self._reading, self._pins.readings)
        for place, functions in loaded:
            if functions:
                dispatcher = Dispatcher(place, watched, self._dropped, self._missed)
                dispatcher.add(functions)
                place.put(dispatcher)
                yield from (function.stored.unit for function in functions)

    def _functions(self, place: Boundary, stored: list[Stored]) -> Iterator[Function]:
        if has_hooks(place.module):
            self.reasons.append(
                f"{place.path or 'the model'} has hooks, which a function passes by"
            )
            return
        for item in stored:
            if item.kind in place.kinds:
                try:
                    reason = self._pins.difference(item.facts["pins"])
                    reason = reason or context_difference(item.facts["pins"], self._context)
                    if reason:
                        self.reasons.append(f"{item.unit} is not used: {reason}")
                    else:
                        yield Function(item, place.module.forward)
                except Exception as error:  # what was written elsewhere may be anything
                    self.damaged[item.unit] = _told(error)

    def _dropped(self, function: Function, error: Exception) -> None:
        self._failed(function.stored.unit, _told(error))


def _told(error: Exception) -> str:
    if isinstance(error, TccacheError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
