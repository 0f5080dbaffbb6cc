"""Names of functions for a log that nobody reads: not looked up.

From Python 3.11 on Dynamo says for each operation that it traces in which function that is, for
its log of traced calls. It finds the name by taking apart the whole source file, and those of all
libraries that the model runs through, also where that log is off.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cachesvc.runtime.watch import wrap

_MODULE = "torch._dynamo.symbolic_convert"
_FUNCTION = "get_funcname"
_LOGS = ("trace_call_log", "trace_source_log")


@functools.cache
def spare_names() -> None:
    """Leaves the names out while the logs that show them are off.

    Where this torch lacks the function or one of these logs, nothing changes.
    """
    import wrapt

    wrapt.register_post_import_hook(_watch, _MODULE)


def _watch(module: ModuleType) -> None:
    found = (getattr(module, name, None) for name in _LOGS)
    logs = [log for log in found if isinstance(log, logging.Logger)]

    def name(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        wanted = any(log.isEnabledFor(logging.DEBUG) for log in logs)
        return wrapped(*args, **kwargs) if wanted else None

    if hasattr(module, _FUNCTION) and len(logs) == len(_LOGS):
        wrap(module, _FUNCTION, name)
