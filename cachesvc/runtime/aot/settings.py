"""Settings of a process that decide what the compiler would make: flags, configuration, operators.

Another value would have made another function, so a function is used only where they are equal.
What a thread sets for its calls (gradients, autocast, precision) is compared at each call instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachesvc.core.components import Components
from cachesvc.core.context import OPS
from cachesvc.core.digest import Json
from cachesvc.runtime.context import read_context

_DECIDING = ("variable ", "inductor ", "dynamo ", OPS)
_PIN = "context"


def deciding_context() -> Components:
    """The settings of this process, as they are now."""
    context = read_context()
    return Components.of({n: v for n, v in context.items() if n.startswith(_DECIDING)})


def context_pin() -> dict[str, Json]:
    """The same, to be kept with a function."""
    return {_PIN: dict(deciding_context())}


def context_difference(pins: Mapping[str, Any], here: Components) -> str:
    """What is set otherwise here than where a function was compiled; empty if nothing is."""
    for difference in Components.of(pins[_PIN]).diff(here):
        return f"the context differs, {difference}"
    return ""
