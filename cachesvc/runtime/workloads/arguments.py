"""What the function of a workload is given, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cachesvc.core.errors import UsageError
from cachesvc.core.workload_options import WorkloadOptions

Compile = Callable[[Any], Any]
"""Takes a module or a callable, and gives what is to be called in its place."""


def accepted(
    function: Callable[..., Any], target: str, options: WorkloadOptions, compile: Compile | None
) -> dict[str, object]:
    """The keyword arguments to call the function of a target with.

    What was asked for in `options` it must take; `compile` it is given if it takes that. Raises
    UsageError naming the first parameter that it has not.
    """
    asked = options.arguments()
    for name in asked:
        if not _takes(function, name):
            raise UsageError(
                f"{target} takes no `{name}`: give the function such a parameter, or leave"
                f" --{name} away"
            )
    if compile is not None and _takes(function, "compile"):
        asked["compile"] = compile
    return asked


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes an argument by this keyword; no, if it does not show that."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = parameters.get(name)
    return (named is not None and named.kind in by_keyword) or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
