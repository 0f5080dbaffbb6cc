"""Workloads: models with example calls, ready to be started."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.errors import UsageError
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.runtime.workloads.architectures import ARCHITECTURES
from cachesvc.runtime.workloads.arguments import Compile as Compile
from cachesvc.runtime.workloads.arguments import accepted
from cachesvc.runtime.workloads.sizes import SIZES

_DEMO, _HF = "demo", "hf"
_DEMOS = ("mlp", "gpt", "resnet")
_NOTHING_ASKED = WorkloadOptions()
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

    The first call works on `items` of `unit` (images, tokens, ...): what a throughput counts.
    """

    name: str
    model: Any
    calls: Calls
    training: bool = False
    items: int = 1
    unit: str = "calls"

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
        if isinstance(self.items, bool) or not isinstance(self.items, int) or self.items < 1:
            raise UsageError(f"a call works on {self.items!r} items: write a number from 1 on")
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise UsageError(f"{self.unit!r} is no unit of items: write a word, such as images")


def load_workload(
    target: str, options: WorkloadOptions = _NOTHING_ASKED, compile: Compile | None = None
) -> Workload:
    """The workload that `demo:NAME`, `hf:ARCH` or `module:function` names.

    The function is given what was asked for in `options`, and `compile` if it has a parameter of
    that name: called with a module or a callable, it gives what is to be called in its place
    (compiled, or the same for a run that compiles nothing). A workload that leaves compiling to
    the caller needs none.

    Raises UsageError if there is none of that name, if it does not take what was asked for, or if
    the function fails or gives something else.
    """
    module, name = check_target(target)
    shipped = module in (_DEMO, _HF)
    if shipped and options.size not in (None, *SIZES):
        raise UsageError(f"{target} has no size {options.size}: choose one of {', '.join(SIZES)}")
    build = _shipped(module, name) if shipped else _users(module, name)
    arguments = accepted(build, target, options, compile)
    try:
        workload = build(**arguments)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise UsageError(f"{target} failed: {told(error)}") from error
    if not isinstance(workload, Workload):
        raise UsageError(f"{target} gave a {type(workload).__name__}, not a cachesvc.Workload")
    return workload


def check_target(target: str) -> tuple[str, str]:
    """The module and the function that a target names; UsageError if it cannot be one."""
    module, _, function = target.partition(":")
    if not (module and function):
        raise UsageError(f"{target!r} is no target: write demo:NAME, hf:ARCH or module:function")
    names = {_DEMO: _DEMOS, _HF: tuple(ARCHITECTURES)}.get(module)
    if names is not None and function not in names:
        raise UsageError(f"there is no workload {target}: choose one of {', '.join(names)}")
    if names is None and not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(
            f"{module!r} is no module: write app:workload, with app.py in the working directory or"
            " on PYTHONPATH"
        )
    if module == _HF and importlib.util.find_spec("transformers") is None:
        raise UsageError(
            f"{target} needs transformers, which is not here: pip install transformers"
        )
    return module, function


def _shipped(module: str, name: str) -> Callable[..., Any]:
    file = _HF if module == _HF else name
    build: Callable[..., Any] = importlib.import_module(f"{__name__}.{file}").workload
    return functools.partial(build, name) if module == _HF else build


def _users(module: str, function: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"cannot load {module}:{function}: {told(error)}; modules are looked for in the working"
            " directory and on PYTHONPATH"
        ) from error
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
