"""Code of this library in calls that Dynamo compiles: it is none of the model's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_eval_frame: Any = getattr(torch._C._dynamo, "eval_frame", None)


def passed_over(function: Callable[..., Any]) -> None:
    """Has Dynamo run a function as it is written and compile what it calls.

    Where this torch does not offer that, the function is compiled with the model that it calls:
    outputs are the same, and AOTAutograd's cache does not know the graph.
    """
    code = function.__code__
    if hasattr(_eval_frame, "set_code_exec_strategy"):
        skip, default = _eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.DEFAULT
        _eval_frame.set_code_exec_strategy(code, _eval_frame._FrameExecStrategy(skip, default))
    elif hasattr(_eval_frame, "skip_code"):
        _eval_frame.skip_code(code)


def stop_compiling() -> Any:
    """From now on Dynamo compiles nothing in this thread; what `go_on_compiling` wants for that to
    end, None where it did not before either, or where this torch cannot be asked."""
    return _set(None)


def go_on_compiling(before: Any) -> None:
    """Dynamo compiles again what it did."""
    if before is not None:
        _set(before)


def need_not_compile() -> None:
    """Lets a call end in which Dynamo had nothing to compile, which `fullgraph` takes for an error.
    Does nothing where this torch does not."""
    _count(-1)


_set: Callable[[Any], Any] = getattr(_eval_frame, "set_eval_frame", lambda _: None)
_count: Callable[[int], int] = getattr(
    _eval_frame, "set_fullgraph_compiled_frame_count", lambda number: number
)
