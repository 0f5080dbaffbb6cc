"""Workloads: models with example calls, ready to be started."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.errors import UsageError

_DEMOS = {"gpt": "cachesvc.runtime.workloads.gpt"}
Calls = Sequence[tuple[Any, ...] | list[Any] | Mapping[str, Any] | Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A model and its example calls.

    `model` is compiled with torch's defaults, unless it, or a part of it, is compiled already. It
    may be several models, in a sequence or by name.

    Each of `calls` is a sequence of positional arguments, a mapping of keyword arguments, or a
    callable without arguments: a training step, say, or a call of one of several models. A
    callable calls what is compiled by itself, and gives back what is to be compared. Calls are
    made in order, without gradients unless `training` is set. A training step that has done
    something for the first time may compile more the second time: give it twice.
    """

    name: str
    model: Any
    calls: Calls
    training: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.calls, str | Mapping) or not isinstance(self.calls, Sequence):
            raise UsageError("the calls of a workload are a sequence: write calls=[(batch,)]")
        if not self.calls:
            raise UsageError("a workload needs one call at least: write calls=[(batch,)]")
        several = isinstance(self.model, Mapping | list | tuple)
        if several and not all(map(callable, self.calls)):
            raise UsageError(
                "arguments alone do not say which of several models is called: give callables"
                " without arguments, such as calls=[lambda: encoder(batch)]"
            )


def load_workload(target: str) -> Workload:
    """The workload that `demo:NAME` or `module:function` names.

    Raises UsageError if there is none of that name, or the function fails or gives something else.
    """
    module, function = check_target(target)
    build = _demo(function) if module == "demo" else _users(module, function)
    try:
        workload = build()
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise UsageError(f"{target} failed: {told(error)}") from error
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
        raise UsageError(f"cannot load {module}:{function}: {told(error)}") from error
    except (Exception, SystemExit) as error:  # as above
        raise UsageError(f"cannot import {module}: {told(error)}") from error
    return found


def told(error: BaseException) -> str:
    """An exception of the user's code in one line, with the place where it was raised."""
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text[:600]}{'...' if len(text) > 600 else ''}"
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if not _is_machinery(f.filename)), None)
    return f"{said} ({last.filename}:{last.lineno})" if last else said


def _is_machinery(file: str) -> bool:
    passed_through = {"importlib", "torch", "cachesvc"}
    return file.startswith("<") or not passed_through.isdisjoint(Path(file).parts)
