"""Example calls: what a caller gives, made into calls with signatures."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cachesvc.core.errors import UsageError
from cachesvc.runtime.backend import is_compiled
from cachesvc.runtime.describe import describe_tensor


@dataclass(frozen=True, slots=True)
class Call:
    """One example call; `signature` tells calls that compile differently apart."""

    signature: str
    run: Callable[[], Any]


def example_calls(
    model: Any,
    inputs: Sequence[Any] | Mapping[str, Any] | None,
    calls: Iterable[Any] | None,
) -> tuple[Call, ...]:
    """The calls that `inputs` (one call's arguments) and `calls` stand for, in order.

    Each of `calls` is a sequence of positional arguments, a mapping of keyword arguments, or a
    callable without arguments that makes the call itself. A module that nobody has compiled yet
    is called through `torch.compile(model)`, whose code a later such call finds in place.
    """
    given = ([] if inputs is None else [inputs]) + list(calls or ())
    runner = functools.cache(lambda: _runner(model))
    return tuple(_call(runner, item) for item in given)


def _runner(model: Any) -> Callable[..., Any]:
    if isinstance(model, torch.nn.Module) and not is_compiled(model):
        compiled: Callable[..., Any] = torch.compile(model)
        return compiled
    runner: Callable[..., Any] = model
    return runner


def _call(runner: Callable[[], Callable[..., Any]], item: Any) -> Call:
    if isinstance(item, Mapping):
        return Call(_signature((), item), lambda: runner()(**item))
    if isinstance(item, list | tuple):
        return Call(_signature(item, {}), lambda: runner()(*item))
    if callable(item) and not isinstance(item, torch.Tensor):
        return Call(f"call {getattr(item, '__qualname__', type(item).__name__)}", item)
    raise UsageError(
        f"a call is a sequence of arguments, a mapping of them, or a callable without arguments,"
        f" not {type(item).__name__}: write inputs=[batch]"
    )


def _signature(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    named = (f"{name}={_short(value)}" for name, value in kwargs.items())
    return f"({', '.join((*map(_short, args), *named))})"


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        facts = describe_tensor(value)
        grad = " grad" if value.requires_grad else ""
        return f"{str(value.dtype).removeprefix('torch.')}{facts.get('shape', '[?]')}{grad}"
    if isinstance(value, bool | int | float | str | type(None)):
        return repr(value)[:80]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_short, value)) + "]"
    return type(value).__name__


def timed(call: Call) -> float:
    """Makes the call and waits for its result; seconds. Raises what the call raises."""
    started = time.perf_counter()
    call.run()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter() - started
