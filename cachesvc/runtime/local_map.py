"""Dynamo's look for `local_map`: not made where it cannot find anything.

For each object that it traces Dynamo asks whether that is `local_map` of torch's distributed
tensors, and imports these, with their experiments, to compare. The answer is no in any case unless
a program has switched it on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cachesvc.runtime.watch import wrap

_MODULE = "torch._dynamo.variables.higher_order_ops"
_CLASS = "LocalMapWrappedHigherOrderVariable"
_FUNCTION = "should_wrap_in_hop"
_SWITCH = "_enabled"


@functools.cache
def spare_local_map() -> None:
    """Says no while it is switched off.

    Where this torch does not ask, or has no such switch, nothing changes.
    """
    import wrapt

    wrapt.register_post_import_hook(_watch, _MODULE)


def _watch(module: ModuleType) -> None:
    holder = getattr(module, _CLASS, None)

    def is_local_map(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        is_off = getattr(holder, _SWITCH, None) is False
        return False if is_off else wrapped(*args, **kwargs)

    if hasattr(holder, _FUNCTION) and hasattr(holder, _SWITCH):
        wrap(module, f"{_CLASS}.{_FUNCTION}", is_local_map)
