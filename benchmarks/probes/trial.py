"""One probe of one model: a change, made before or after it was armed, and what the call gives."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.probes.families import Family
from cachesvc.runtime.aot.arm import arm
from cachesvc.runtime.aot.dispatch import Dispatcher
from cachesvc.runtime.aot.tally import tally
from cachesvc.runtime.model import read_model

_TOLERANCE = 1e-4
_DEPTH = 8
BEFORE, AFTER = "before", "after"


class Unserved(Exception):
    """The unchanged model's call was not served: no probe would show anything."""


class Inapplicable(Exception):
    """A probe has nothing to change in this model."""


@dataclass
class Side:
    """A model with its next call: one side is armed, the other is eager and says what is right."""

    family: Family
    model: Any
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    modes: list[Callable[[], AbstractContextManager[Any]]] = field(
        default_factory=lambda: [torch.no_grad]
    )
    call: Callable[..., Any] | None = None
    """What is called in place of the model, with it as first argument."""

    def renew(self) -> None:
        """New arguments for the next call."""
        with torch.no_grad():
            args, kwargs = self.family.call(self.model)
        self.args, self.kwargs = list(args), dict(kwargs)

    def run(self) -> Any:
        """What the call gives, and leaves in its arguments and in the model's buffers."""
        torch.manual_seed(2)
        with ExitStack() as stack:
            for mode in self.modes:
                stack.enter_context(mode())
            try:
                call = self.call or (lambda model, *args, **kwargs: model(*args, **kwargs))
                output = call(self.model, *self.args, **self.kwargs)
            except Exception as error:  # a changed model may raise anything
                return type(error)
        buffers = list(self.model.buffers()) if isinstance(self.model, nn.Module) else []
        return output, self.args, self.kwargs, buffers


@dataclass(frozen=True, slots=True)
class Probe:
    """`change` is made to each side, `everywhere` once for both; `served` says that a function
    must take the call all the same. `both` is false where a change makes sense only after the
    model was armed."""

    name: str
    change: Callable[[Side], None] | None = None
    everywhere: Callable[[ExitStack, Side], None] | None = None
    served: bool = False
    both: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """`way` is refused, passed on, served or inapplicable; `effect` whether the change can be seen
    in eager's output."""

    family: str
    probe: str
    moment: str
    way: str
    right: bool
    effect: bool
    must: bool

    @property
    def is_wrong(self) -> bool:
        return self.way == "served" and not self.right

    @property
    def is_missed(self) -> bool:
        return self.must and self.way in ("refused", "passed on")


class Bench:
    """Runs the probes of one family with the functions that were captured for it."""

    def __init__(self, family: Family, folders: list[Path]) -> None:
        self._family = family
        self._folders = folders
        self._reasons: tuple[str, ...] = ()
        eager = _side(family)
        self._plain = eager.run()
        eager.renew()
        self._second = eager.run()

    def outcomes(self, probe: Probe) -> Iterator[Outcome]:
        for moment in (BEFORE, AFTER) if probe.both else (AFTER,):
            yield self._outcome(probe, moment)

    def _outcome(self, probe: Probe, moment: str) -> Outcome:
        with ExitStack() as stack:
            stack.enter_context(_eager_fallback())
            try:
                armed, eager = self._sides(probe, moment, stack)
            except Unserved:
                raise
            except Exception as error:  # a change may not be possible for this model
                if not isinstance(error, Inapplicable):
                    print(f"{self._family.name}: {probe.name} cannot be made: {error!r:.200}")
                return self._told(probe, moment, "inapplicable", True, False)
            before = tally.hits
            dispatchers = [c for m in _modules(armed.model) for c in _dispatchers(m)]
            given, right = armed.run(), eager.run()
        way = "served" if tally.hits > before else "passed on" if dispatchers else "refused"
        plain = self._plain if moment == BEFORE else self._second
        return self._told(probe, moment, way, same(given, right), not same(right, plain))

    def _told(self, probe: Probe, moment: str, way: str, right: bool, effect: bool) -> Outcome:
        return Outcome(self._family.name, probe.name, moment, way, right, effect, probe.served)

    def _sides(self, probe: Probe, moment: str, stack: ExitStack) -> tuple[Side, Side]:
        armed, eager = _side(self._family), _side(self._family)
        if moment == AFTER:
            self._arm(armed)
            before = tally.hits
            armed.run()
            eager.run()
            if tally.hits == before:
                raise Unserved(f"{self._family.name}: {self._reasons or dict(tally.reasons)}")
            armed.renew()
            eager.renew()
        if probe.everywhere is not None:
            probe.everywhere(stack, armed)
        if probe.change is not None:
            probe.change(armed)
            probe.change(eager)
        if moment == BEFORE:
            self._arm(armed)
        return armed, eager

    def _arm(self, side: Side) -> None:
        models = {"": side.model}
        readings = {"": read_model(side.model)}
        armed = arm(models, readings, self._folders, salt="", failed=_failed, missed=_ignored)
        self._reasons = armed.reasons


def _ignored() -> None:
    """A miss is what most probes are after."""


def _failed(unit: str, reason: str) -> None:
    print(f"failed: {unit}: {reason}", flush=True)


def _side(family: Family) -> Side:
    side = Side(family, family.model())
    side.renew()
    return side


def _modules(model: Any) -> list[nn.Module]:
    return list(model.modules()) if isinstance(model, nn.Module) else []


def _dispatchers(module: nn.Module) -> list[Dispatcher]:
    return [value for value in module.__dict__.values() if isinstance(value, Dispatcher)]


def _eager_fallback() -> AbstractContextManager[Any]:
    """Calls that are passed on are not compiled, which would take a minute each."""
    from unittest.mock import patch

    def eager(dispatcher: Dispatcher, _: bool) -> Any:
        return dispatcher.boundary.plain_call

    return patch.object(Dispatcher, "_fallback", eager)


def same(one: Any, other: Any, depth: int = _DEPTH) -> bool:
    """Whether two values are equal: structures, classes, tensors within a tolerance."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _same_tensor(one, other)
    if type(one) is not type(other) and type(one).__name__ != type(other).__name__:
        return False
    if depth < 0 or isinstance(one, type | functools.partial) or callable(one):
        return True
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k], depth - 1) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other, [depth - 1] * len(one)))
    if isinstance(one, float | int | str | bytes | None | torch.dtype | torch.device):
        return bool(one == other)
    if dataclasses.is_dataclass(one) or hasattr(one, "__dict__"):
        return same(vars(one), vars(other), depth - 1)
    return True


def _same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    kinds = [
        (type(t).__name__, t.dtype, t.shape, t.device, t.requires_grad, t.layout)
        for t in (one, other)
    ]
    if kinds[0] != kinds[1]:
        return False
    if one.device.type == "meta" or type(one).__name__ == "FakeTensor":
        return True
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        first, second = (t.to_dense() if t.is_sparse else t for t in (one.detach(), other.detach()))
        return torch.allclose(first, second, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
