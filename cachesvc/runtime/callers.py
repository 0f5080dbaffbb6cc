"""Who made the call that is being compiled, read off the stack of the thread that compiles."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from cachesvc.runtime.calls import signature, timed

_TORCH = str(Path(torch.__file__).parent)
_WRAPPERS = str(Path(_TORCH, "_dynamo", "eval_frame.py"))
_MODULES = str(Path(_TORCH, "nn", "modules", "module.py"))
_COMPILED = ("compile_wrapper", "_fn")
_NOBODYS = (f"{_TORCH}{os.sep}", f"{Path(__file__).parents[1]}{os.sep}", "<frozen")
_PATHS = sysconfig.get_paths()
_PYTHON = tuple(f"{_PATHS[name]}{os.sep}" for name in ("stdlib", "platstdlib", "scripts"))
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Caller:
    """A call: its signature, its place in the program, and which of the models that were asked for
    it calls (their ids). The signature is empty where this torch does not show the call."""

    signature: str = ""
    place: str = ""
    asked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Calling:
    """A frame of torch's that makes a call: of what (its ids), with which arguments."""

    frame: FrameType
    called: frozenset[int]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Callers:
    """The calls on a thread's stack, from a frame of it upwards."""

    def __init__(self, frame: FrameType | None) -> None:
        self._frame = frame
        frames = tuple(_upwards(frame))
        self.is_own = any(each.f_code is timed.__code__ for each in frames)
        self._calls = tuple(call for each in frames if (call := _calling(each)) is not None)

    def of(self, models: Collection[int]) -> Caller:
        """The outermost call of one of these models (their ids), else the innermost of compiled
        code, else whatever the program does there."""
        asked = [call for call in self._calls if call.called.intersection(models)]
        compiled = [call for call in self._calls if _is_compiled(call.frame)]
        chosen = asked[-1] if asked else compiled[0] if compiled else None
        if chosen is None:
            return Caller(place=_place(self._frame))
        text = signature(chosen.args, chosen.kwargs)
        return Caller(text, _place(chosen.frame), chosen.called.intersection(models))


def _upwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _calling(frame: FrameType) -> _Calling | None:
    """The call that one of torch's frames makes.

    Where this torch makes calls in another way, their signatures are not known.
    """
    code = frame.f_code
    if code.co_filename not in (_WRAPPERS, _MODULES):
        return None
    scope = frame.f_locals
    args, kwargs, owner = scope.get("args"), scope.get("kwargs"), scope.get("self")
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        return None
    if type(owner).__name__ == "DisableContext":  # not compiled at all
        return None
    return _Calling(frame, frozenset({id(owner), id(scope.get("fn"))}), args, kwargs)


def _is_compiled(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename == _WRAPPERS and code.co_name in _COMPILED


def _place(frame: FrameType | None) -> str:
    """Where the program came to this frame: the innermost place that is not installed, else the
    innermost one that is not torch's."""
    places = [each for each in _upwards(frame) if _is_of_program(each.f_code.co_filename)]
    own = [each for each in places if not _is_installed(each.f_code.co_filename)]
    for each in (*own, *places):
        code = each.f_code
        return f"{Path(code.co_filename).name}:{each.f_lineno} in {code.co_name}"
    return ""


def _is_of_program(file: str) -> bool:
    return not file.startswith(_NOBODYS)


def _is_installed(file: str) -> bool:
    return file.startswith(_PYTHON) or any(part in file for part in _INSTALLED)
