"""Settings of this process's compiler that decide what is compiled, and what is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator

_SWITCHES = (
    ("torch.compiler.config", "force_disable_caches", True),
    ("torch._inductor.config", "force_disable_caches", True),
    ("torch._inductor.config", "fx_graph_cache", False),
    ("torch._inductor.config", "autotune_local_cache", False),
    ("torch._functorch.config", "enable_autograd_cache", False),
    ("torch._dynamo.config", "disable", True),
)


def switched_off() -> tuple[str, ...]:
    """The settings that switch the compiler or a cache off here, as `module.name = value`.

    One that this torch does not have counts as not set; one under two names is told once.
    """
    return tuple(dict(_off()).values())


def _off() -> Iterator[tuple[str, str]]:
    for module, name, off in reversed(_SWITCHES):
        value = getattr(sys.modules.get(module), name, None)
        if value is not None and bool(value) is off:  # a variable can make a text of it
            yield name, f"{module}.{name} = {value!r}"


def recompile_limit() -> int | None:
    """How many versions of one function Dynamo compiles; None where this torch does not say."""
    config = sys.modules.get("torch._dynamo.config")
    limit = getattr(config, "recompile_limit", None) or getattr(config, "cache_size_limit", None)
    return limit if isinstance(limit, int) else None
