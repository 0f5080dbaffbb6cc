"""A model's call, taken to a function compiled ahead of time where that is right.

Before each call is asked: is the model what it was (its seal), is the call of a kind that a
function was compiled for (its key, and the state of this thread)? Where any answer is no, the call
goes the way it went before: through the compiler, or, where nothing was compiled yet, through
`torch.compile` from then on.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch

from cachesvc.runtime.aot.boundary import Boundary
from cachesvc.runtime.aot.call_key import Key, NoKey, call_key
from cachesvc.runtime.aot.function import DoesNotFit, Function, PassedOn
from cachesvc.runtime.aot.paths import Paths
from cachesvc.runtime.aot.pause import is_paused
from cachesvc.runtime.aot.pins import library_of, read_places
from cachesvc.runtime.aot.seal import Seal
from cachesvc.runtime.aot.settled import MOST_CHANGES, Settled
from cachesvc.runtime.aot.stance import is_eager_wanted
from cachesvc.runtime.aot.state import is_transformed, state_facts
from cachesvc.runtime.aot.tally import tally
from cachesvc.runtime.aot.untraced import (
    go_on_compiling,
    need_not_compile,
    passed_over,
    stop_compiling,
)
from cachesvc.runtime.model import Reading, read_model

Besides = Mapping[tuple[str, ...], Reading]

MOST_READINGS = 3
"""How often in a row a model may be found changed by one call before nobody looks any more."""

_MODULE_CALL = torch.nn.Module.__call__.__code__
_NO_MEMORY = "can't allocate memory"  # as torch says it of a CPU

CHANGED = "the model has changed"
UNSTEADY = "the model changes at each call"
UNCOVERED = "no function was compiled for such a call"
UNKNOWN = "the call has an argument of an unknown kind"
INSIDE = "a transform or a mode of torch's is on"
MISFIT = "what the graph would be given is of another kind"
FAILED = "the function has failed"


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
        self._library = library_of(reading).digest()
        self._seals = _seals(reading, besides)
        self._fits = self._is_still_expected()
        self._unsteady = 0
        self.epoch = 0
        """Counts how often the model has been read anew."""

    def fits(self) -> str:
        """Empty where it is that model, else what is to be said. Never raises: what cannot be
        looked at has changed."""
        try:
            if all(seal.is_whole() for seal in self._seals):
                self._unsteady = 0
                return "" if self._fits else CHANGED
            with self._lock:
                return self._look_again()
        except Exception:  # attributes may raise anything, and code may be gone
            return CHANGED

    def unlock(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self._lock = threading.Lock()

    @property
    def tensors(self) -> Collection[int]:
        """The ids of the model's tensors."""
        return self._seals[0].tensors

    @property
    def loose(self) -> Collection[str]:
        """The names of what the model's own code writes: no constants for its digest."""
        return self._seals[0].loose

    def _look_again(self) -> str:
        if self._unsteady >= MOST_READINGS:
            return UNSTEADY
        self._unsteady += 1
        reading, besides = self._read()
        fits = self._is_expected(reading, besides)
        seals = _seals(reading, besides)
        self._fits = fits and self._is_still_expected()
        self._seals = seals
        self.epoch += 1
        return "" if self._fits else CHANGED

    def _is_still_expected(self) -> bool:
        """Read once more, now that there are seals: since the reading that these are made of,
        somebody may have changed the model."""
        try:
            return self._is_expected(*self._read())
        except Exception:  # attributes may raise anything, and code may be gone
            return False

    def _read(self) -> tuple[Reading, Besides]:
        besides = {names: read_places(names) for names in self._besides}
        return read_model(self._model, salt=self._salt), besides

    def _is_expected(self, reading: Reading, besides: Besides) -> bool:
        digests = {names: other.components.digest for names, other in besides.items()}
        return (
            reading.components.digest == self._expected
            and digests == self._besides
            and library_of(reading).digest() == self._library
        )


def _seals(reading: Reading, besides: Besides) -> list[Seal]:
    first = Seal(reading, library_of(reading))
    return [first, *(Seal(other) for other in besides.values())]


@dataclass(frozen=True, slots=True)
class Miss:
    """In place of an output: why no function has made the call; `blamed` is one that has failed,
    and its error."""

    reason: str
    blamed: tuple[Function, Exception] | None = None


@dataclass(eq=False)
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
    _settled: dict[Function, Settled] = field(default_factory=dict)
    _settling: threading.RLock = field(default_factory=threading.RLock)
    _announced: bool = False

    def __post_init__(self) -> None:
        _dispatchers.add(self)

    @property
    def replaced(self) -> Callable[..., Any] | None:
        """The compiled call whose place this has taken; None if there was none."""
        return self.boundary.replaced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_paused() or is_eager_wanted():
            return self.boundary.module._call_impl(*args, **kwargs)
        if (other := self._other(sys._getframe(1))) is not None:
            return other._call_impl(*args, **kwargs)
        compiling = stop_compiling()
        try:
            answer = self._answer(args, kwargs)
        finally:
            go_on_compiling(compiling)
        if isinstance(answer, Miss):
            tally.miss(answer.reason)
            if answer.reason == INSIDE and self.boundary.replaced is None:
                return self.boundary.plain_call(*args, **kwargs)  # torch cannot compile it there
            output = self._fallback(compiling is not None)(*args, **kwargs)
            if answer.blamed is not None:  # not for a call that nothing could have made
                self._drop(*answer.blamed)
            return output
        if compiling is not None:
            need_not_compile()
        return answer

    passed_over(__call__)

    def _other(self, caller: FrameType) -> Any:
        """The module that is called, if it is another one that has been given all attributes of
        this one's: as `DataParallel` makes them, which have parameters of their own."""
        if caller.f_code is not _MODULE_CALL or self.boundary.replaced is not None:
            return None
        module = caller.f_locals["self"]
        return None if module is self.boundary.holder else module

    def unlock(self) -> None:
        """Another thread may have held a lock when this process was forked."""
        self._settling = threading.RLock()
        self.watched.unlock()

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of a model starts without."""

    def __reduce__(self) -> Any:
        return (_nothing, ())

    def add(self, functions: Iterable[Function]) -> None:
        """More functions, each under the key of its call."""
        for function in functions:
            self.functions[function.stored.call, function.stored.state] = function

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function's output, or a Miss."""
        found = self._function(args, kwargs)
        if isinstance(found, str):
            return Miss(found)
        if settled := self._settled_now(found):
            return self._call(found, settled, args, kwargs)
        with self._settling:  # one thread at a time: what is looked up now counts for all
            settled = self._settled_now(found) or self._unsettle(found, args, kwargs)
            return self._call(found, settled, args, kwargs)

    def _function(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function | str:
        """The function for a call, or why there is none."""
        if is_transformed():
            return INSIDE
        try:
            key = call_key(args, kwargs, self.watched.tensors)
            function = self.functions.get((key, state_facts()))
        except (NoKey, TypeError, RuntimeError):
            return UNKNOWN
        if function is None:
            return UNCOVERED
        if reason := self.watched.fits():
            return reason
        settled = self._settled.get(function)
        if settled is not None and settled.is_misfit and settled.is_whole(self.watched.epoch):
            return MISFIT
        return function

    def _settled_now(self, function: Function) -> Settled | None:
        """All that the function takes for constant, if it was looked up and has not moved."""
        settled = self._settled.get(function)
        if settled is None or not function.is_checked or not settled.is_whole(self.watched.epoch):
            return None
        return settled

    def _unsettle(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Settled:
        """Has the next call look everything up. It is watched first: so nothing can move unseen
        once it was looked up."""
        epoch, before = self.watched.epoch, self._settled.get(function)
        changes = 0 if before is None else before.changes_next(epoch)
        paths = None if changes > MOST_CHANGES else self._paths(function, args, kwargs)
        settled = self._settled[function] = Settled(epoch, paths, changes)
        function.look_again()
        return settled

    def _paths(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Paths | None:
        module = self.boundary.module
        try:
            return Paths(
                function.ledger,
                module,
                function.own,
                (module, *args),
                kwargs,
                loose=self.watched.loose,
            )
        except Exception:  # the arguments may be none that the function takes
            return None

    def _call(
        self,
        function: Function,
        settled: Settled,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The output of a function, or a Miss."""
        try:
            output = function(self.boundary.module, *args, **kwargs)
        except DoesNotFit:
            settled.is_misfit = not function.is_checked
            return Miss(MISFIT)
        except PassedOn as passed:
            raise passed.error from None
        except OSError:  # of this machine, as a full disk, and not of the function
            return Miss(FAILED)
        except Exception as error:
            if _is_about_memory(error):
                raise
            return Miss(FAILED, (function, error))
        tally.hit(function.stored.unit)
        return output

    def _drop(self, function: Function, error: Exception) -> None:
        self.functions = {k: f for k, f in self.functions.items() if f is not function}
        self.failed(function, error)

    def _fallback(self, is_compiled: bool) -> Callable[..., Any]:
        """The call that this stands in place of; one that nobody compiles, around it or itself, is
        compiled now."""
        if self.boundary.replaced is None and is_compiled:
            self._announce()
            return self.boundary.plain_call
        return self._compiled

    @functools.cached_property
    def _compiled(self) -> Callable[..., Any]:
        self._announce()
        if self.boundary.replaced is not None:
            return self.boundary.replaced
        return torch.compile(self.boundary.plain_call)

    def _announce(self) -> None:
        """Says once that something may have to be compiled."""
        if not self._announced:
            self._announced = True
            self.missed()


_dispatchers: WeakSet[Dispatcher] = WeakSet()


def _unlock_all() -> None:
    for dispatcher in _dispatchers:
        dispatcher.unlock()


os.register_at_fork(after_in_child=_unlock_all)


def _nothing() -> None:
    """What a dispatcher is in a pickle."""


def _is_about_memory(error: Exception) -> bool:
    """Whether there was no room for the call, which is no fault of the function."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _NO_MEMORY in str(error)
