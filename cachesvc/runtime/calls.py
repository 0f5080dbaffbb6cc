"""Example calls: what a caller gives, made into calls with signatures."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cachesvc.core.errors import UsageError
from cachesvc.runtime.backend import is_armed, is_compiled
from cachesvc.runtime.functions import closure
from cachesvc.runtime.tensors import describe_tensor


@dataclass(frozen=True, slots=True)
class Call:
    """One example call; `signature` tells calls that compile differently apart.

    `arguments` are the positional and the keyword arguments; None for a callable without any, of
    which nobody knows what it calls with.
    """

    signature: str
    run: Callable[[], Any]
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None


def example_calls(
    model: Any,
    inputs: Sequence[Any] | Mapping[str, Any] | None,
    calls: Iterable[Any] | None,
    *,
    compiled: bool = True,
) -> tuple[Call, ...]:
    """The calls that `inputs` (one call's arguments) and `calls` stand for, in order.

    Each of `calls` is a sequence of positional arguments, a mapping of keyword arguments, or a
    callable without arguments that makes the call itself. What nobody has compiled yet is called
    through `torch.compile(model)`, whose code a later such call finds in place; unless `compiled`
    is false.
    """
    given = ([] if inputs is None else [inputs]) + list(calls or ())
    runner = functools.cache(lambda: _runner(model, compiled))
    return tuple(_call(runner, item) for item in given)


def _runner(model: Any, compiled: bool) -> Callable[..., Any]:
    if isinstance(model, Mapping | list | tuple):
        raise UsageError(
            "arguments alone do not say which of several models is called: give callables without"
            " arguments, such as calls=[lambda: encoder(batch), lambda: decoder(state)]"
        )
    as_it_is = not compiled or reaches_compiled(model)
    runner: Callable[..., Any] = model if as_it_is else torch.compile(model)
    return runner


def reaches_compiled(model: Any) -> bool:
    """Whether calling the model reaches compiled code: of its own, or of what it calls by name."""
    if isinstance(model, torch.nn.Module):
        return is_compiled(model) or is_armed(model)
    if is_compiled(model):
        return True
    inner = getattr(model, "__func__", model)
    names = getattr(getattr(inner, "__code__", None), "co_names", ())
    scope = getattr(inner, "__globals__", {})
    reached = [value for _, value in closure(inner)] + [scope.get(name) for name in names]
    return any(map(is_compiled, (getattr(model, "__self__", None), *reached)))


def _call(runner: Callable[[], Callable[..., Any]], item: Any) -> Call:
    if isinstance(item, Mapping):
        return Call(signature((), item), lambda: runner()(**item), ((), dict(item)))
    if isinstance(item, list | tuple):
        return Call(signature(item, {}), lambda: runner()(*item), (tuple(item), {}))
    if callable(item) and not isinstance(item, torch.Tensor):
        return Call(f"call {getattr(item, '__qualname__', type(item).__name__)}", item)
    raise UsageError(
        f"a call is a sequence of arguments, a mapping of them, or a callable without arguments,"
        f" not {type(item).__name__}: write inputs=[batch]"
    )


def signature(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
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


def timed(call: Call) -> tuple[Any, float]:
    """Makes the call and waits for its result; the output, and seconds. Raises what it raises."""
    started = time.perf_counter()
    output = call.run()
    synchronize()
    return output, time.perf_counter() - started


def synchronize() -> None:
    """Waits for what was given to a GPU, if this process uses one."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
