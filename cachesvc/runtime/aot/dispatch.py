"""A model's call, taken to a function compiled ahead of time where that is right.

Before each call is asked: is the model what it was (its seal), is the call of a kind that a
function was compiled for (its key, and the state of this thread)? Where any answer is no, the call
goes the way it went before: through the compiler, or, where nothing was compiled yet, through
`torch.compile` from then on.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from cachesvc.runtime.aot.boundary import Boundary
from cachesvc.runtime.aot.call_key import Key, NoKey, call_key, tensors_of
from cachesvc.runtime.aot.function import DoesNotFit, Function
from cachesvc.runtime.aot.pause import is_paused
from cachesvc.runtime.aot.pins import read_places
from cachesvc.runtime.aot.seal import Seal
from cachesvc.runtime.aot.state import is_transformed, state_facts
from cachesvc.runtime.aot.tally import tally
from cachesvc.runtime.model import Reading, read_model

Besides = Mapping[tuple[str, ...], Reading]

MOST_READINGS = 3
"""How often in a row a model may be found changed by one call before nobody looks any more."""

CHANGED = "the model has changed"
UNSTEADY = "the model changes at each call"
UNCOVERED = "no function was compiled for such a call"
UNKNOWN = "the call has an argument of an unknown kind"
INSIDE = "a transform or a mode of torch's is on"
MISFIT = "what the graph would be given is of another kind"
FAILED = "the function has failed"
FORBIDDEN = "the tier was switched off"


class Watched:
    """One model under watch: whether it is still the model that its functions were compiled for.

    `reading` is of the model as it was then; `besides` are readings of functions, by their names,
    that its calls go through, too.
    """

    def __init__(self, model: Any, salt: str, reading: Reading, besides: Besides) -> None:
        self._model = model
        self._salt = salt
        self._expected = reading.components.digest
        self._besides = {names: other.components.digest for names, other in besides.items()}
        self._lock = threading.Lock()
        self._seals = [Seal(item) for item in (reading, *besides.values())]
        self._fits = True
        self._unsteady = 0
        self.epoch = 0
        """Counts how often the model has been read anew."""

    def fits(self) -> str:
        """Empty where it is that model, else what is to be said."""
        if all(seal.is_whole() for seal in self._seals):
            self._unsteady = 0
            return "" if self._fits else CHANGED
        with self._lock:
            return self._look_again()

    def _look_again(self) -> str:
        if self._unsteady >= MOST_READINGS:
            return UNSTEADY
        self._unsteady += 1
        reading = read_model(self._model, salt=self._salt)
        besides = {names: read_places(names) for names in self._besides}
        digests = {names: other.components.digest for names, other in besides.items()}
        self._fits = reading.components.digest == self._expected and digests == self._besides
        self._seals = [Seal(item) for item in (reading, *besides.values())]
        self.epoch += 1
        return "" if self._fits else CHANGED


@dataclass
class Dispatcher:
    """Stands in the place of a compiled call, and goes on to it where no function is right.

    It is no part of the model: a copy or a pickle of the model has none. `failed` is told of a
    function that has failed, which is not called again; `missed` is called once, before the first
    call that may have to be compiled.
    """

    boundary: Boundary
    watched: Watched
    failed: Callable[[Function, Exception], None]
    missed: Callable[[], None]
    functions: dict[Key, Function] = field(default_factory=dict)
    epoch: int = 0

    @property
    def replaced(self) -> Callable[..., Any] | None:
        """The compiled call whose place this has taken; None if there was none."""
        return self.boundary.replaced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_paused():
            return self.boundary.module._call_impl(*args, **kwargs)
        found = self._function(args, kwargs)
        if isinstance(found, str):
            tally.miss(found)
            return self._fallback(*args, **kwargs)
        return self._call(found, args, kwargs)

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of a model starts without."""

    def __reduce__(self) -> Any:
        return (_nothing, ())

    def add(self, functions: Iterable[Function]) -> None:
        """More functions, each under the key of its call."""
        for function in functions:
            self.functions[function.stored.call, function.stored.state] = function

    def _function(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function | str:
        """The function for a call, or why there is none."""
        if is_transformed():
            return INSIDE
        try:
            function = self.functions.get((call_key(args, kwargs), state_facts()))
        except (NoKey, TypeError, RuntimeError):
            return UNKNOWN
        if function is None:
            return UNCOVERED
        if reason := self.watched.fits():
            return reason
        if self.epoch != self.watched.epoch:
            self.epoch = self.watched.epoch
            for known in self.functions.values():
                known.checked = False
        return function

    def _call(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Through the function; where it fails, as before it was there, with what it has written
        taken back."""
        kept = _Kept(function, args, kwargs) if function.is_on_trial else None
        try:
            output = function(self.boundary.module, *args, **kwargs)
        except DoesNotFit:
            tally.miss(MISFIT)
            return self._fallback(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if kept is None and function.mutated:
                raise
            if kept is not None:
                kept.put_back()
            self._drop(function, error)
            tally.miss(FAILED)
            return self._fallback(*args, **kwargs)
        tally.hit(function.stored.unit)
        return output

    def _drop(self, function: Function, error: Exception) -> None:
        self.functions = {k: f for k, f in self.functions.items() if f is not function}
        self.failed(function, error)

    @functools.cached_property
    def _fallback(self) -> Callable[..., Any]:
        """The call that this stands in place of; one that was not compiled yet is now."""
        self.missed()
        if self.boundary.replaced is not None:
            return self.boundary.replaced
        return torch.compile(self.boundary.plain_call)


def _nothing() -> None:
    """What a dispatcher is in a pickle."""


class _Kept:
    """Copies of the tensors that a function may write to, until it has been called once."""

    def __init__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = tensors_of(args, kwargs) if function.mutated else []
        self._copies = [(tensor, tensor.detach().clone()) for tensor in tensors]

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, copy in self._copies:
                tensor.copy_(copy)
