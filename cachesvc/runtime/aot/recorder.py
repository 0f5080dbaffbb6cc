"""Recording: while a model's calls are made, each of a new kind is captured.

The calls themselves run as they were written: what is wanted of them is only what the model is
called with, and in which state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.boundary import Boundary, boundaries, has_hooks
from cachesvc.runtime.aot.call_key import Key, NoKey, call_key
from cachesvc.runtime.aot.capture import Captured, NotCaptured, capture
from cachesvc.runtime.aot.files import unit_of, write
from cachesvc.runtime.aot.pins import pins_of
from cachesvc.runtime.aot.settings import context_pin
from cachesvc.runtime.aot.state import is_transformed, state_facts
from cachesvc.runtime.backend import inductor_options
from cachesvc.runtime.calls import signature
from cachesvc.runtime.model import Reading, read_model

MOST_FUNCTIONS = 32
"""Calls that are never of one kind twice, as with a cache that grows, would be captured forever."""


@dataclass
class Recorder:
    """Captures the calls of some models, by their names, into a directory.

    `units` are the keys of what was written; `reasons` say of a call why there is nothing for it.
    """

    root: Path
    group: str
    salt: str = ""
    units: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    _seen: set[Any] = field(default_factory=set)

    def put(self, models: Mapping[str, Any]) -> None:
        """From now on all calls of these models are recorded."""
        for name, model in models.items():
            salt = self.salt if name == "" else ""
            reading = read_model(model, salt=salt)
            places = boundaries(model)
            if not places:
                self.reasons.append("a function cannot be replaced in place: give the module")
            for place in places:
                options = inductor_options(place.holder)
                place.put(_Recording(self, name, model, salt, place, reading, options))

    def record(self, recording: _Recording, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Captures a call, unless one of its kind was captured before."""
        try:
            key = call_key(args, kwargs), state_facts()
        except NoKey as error:
            self._note(args, kwargs, str(error))
            return
        part, kinds = recording.part, recording.place.kinds
        if any((part, kind, key) in self._seen for kind in kinds):
            return
        self._seen.add((part, kinds[-1], key))
        try:
            self.units.append(self._captured(recording, key, args, kwargs))
        except TccacheError as error:
            self._note(args, kwargs, str(error))

    def _captured(
        self,
        recording: _Recording,
        key: tuple[Key, Key],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> str:
        if len(self.units) >= MOST_FUNCTIONS:
            raise NotCaptured(f"{MOST_FUNCTIONS} kinds of calls have a function already")
        if is_transformed():
            raise NotCaptured("a transform or a mode of torch's is on")
        if recording.options is None:
            raise NotCaptured("another backend than Inductor compiles the model")
        if not recording.is_current():
            raise NotCaptured("the model has changed since the start, as by train() or eval()")
        if has_hooks(recording.place.module):
            raise NotCaptured("the module has hooks, which a function would pass by")
        captured = capture(recording.place.module.forward, args, kwargs, recording.options)
        kind = _kind(recording.place, captured)
        self._seen.add((recording.part, kind, key))
        folder = write(
            captured,
            self.root,
            group=self.group,
            part=recording.part,
            kind=kind,
            call=key[0],
            state=key[1],
            pins={**pins_of(recording.reading, captured.traced), **context_pin()},
        )
        return unit_of(folder)

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str) -> None:
        self.reasons.append(f"{signature(args, kwargs)}: {reason}")


def _kind(place: Boundary, captured: Captured) -> str:
    """The most general name that the function may be kept under.

    The blocks of a region share one, unless something was taken for constant in which they differ.
    """
    if len(place.kinds) == 1:
        return place.kinds[0]
    return place.kinds[-1 if captured.ledger.mentions(place.differ) else 0]


@dataclass
class _Recording:
    """Stands in the place of one compiled call."""

    recorder: Recorder
    part: str
    model: Any
    salt: str
    place: Boundary
    reading: Reading
    options: Mapping[str, Any] | None

    @property
    def replaced(self) -> Callable[..., Any] | None:
        return self.place.replaced

    def is_current(self) -> bool:
        """Whether the model still is what it was read as."""
        now = read_model(self.model, salt=self.salt).components
        return now.digest == self.reading.components.digest

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            self.recorder.record(self, args, kwargs)
        return self.place.plain_call(*args, **kwargs)
