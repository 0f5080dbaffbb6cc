"""Workloads: models with example calls, ready to be started."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cachesvc.core.errors import UsageError

_DEMOS = {"gpt": "cachesvc.runtime.workloads.gpt"}


@dataclass(frozen=True, slots=True)
class Workload:
    """A model that is not compiled yet, and the arguments of its example calls.

    Each of `calls` is a tuple of positional arguments. The calls are made without gradients
    unless `training` is set.
    """

    name: str
    model: Any
    calls: tuple[tuple[Any, ...], ...]
    training: bool = False


def load_workload(target: str) -> Workload:
    """The workload that `demo:NAME` or `module:function` names.

    Raises UsageError if there is none of that name, or the function fails or gives something else.
    """
    module, function = check_target(target)
    build = _demo(function) if module == "demo" else _users(module, function)
    try:
        workload = build()
    except Exception as error:  # the user's code may raise anything
        raise UsageError(f"{target} failed: {type(error).__name__}: {error}") from error
    if not isinstance(workload, Workload):
        raise UsageError(f"{target} gave a {type(workload).__name__}, not a cachesvc.Workload")
    return workload


def check_target(target: str) -> tuple[str, str]:
    """The module and the function that a target names; UsageError if it cannot be one."""
    module, _, function = target.partition(":")
    if not (module and function):
        raise UsageError(f"{target!r} is no target: write demo:NAME or module:function")
    if module == "demo" and function not in _DEMOS:
        raise UsageError(f"there is no workload {target}: choose one of {', '.join(_DEMOS)}")
    return module, function


def _demo(name: str) -> Callable[[], Any]:
    build: Callable[[], Any] = importlib.import_module(_DEMOS[name]).workload
    return build


def _users(module: str, function: str) -> Callable[[], Any]:
    try:
        found: Callable[[], Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot load {module}:{function}: {error}") from error
    return found
