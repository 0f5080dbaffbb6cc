"""One start of a target under examination: what it has left, and what was switched off in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cachesvc.core.report import Counts
from cachesvc.local.flags import flags_in_effect
from cachesvc.runtime.trace import Trace

# What a start does again, or does not do, because of a setting; each with its variables.
_ENVIRONMENT = {
    "force_disable_caches": (
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        "TORCH_COMPILE_FORCE_DISABLE_CACHES",
    ),
    "fx_graph_cache": ("TORCHINDUCTOR_FX_GRAPH_CACHE",),
    "enable_autograd_cache": ("TORCHINDUCTOR_AUTOGRAD_CACHE",),
    "disable": ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"),
}
_EXPLAINED = {
    "force_disable_caches": ("compiled again", "autotuned again", "traced again"),
    "fx_graph_cache": ("compiled again", "traced again"),
    "enable_autograd_cache": ("traced again",),
    "autotune_local_cache": ("autotuned again",),
    "disable": ("nothing compiled",),
}


@dataclass(frozen=True, slots=True)
class Examined:
    """One start of a target: its report as JSON, the compiler's trace, and settings."""

    report: Mapping[str, Any]
    trace: Trace = field(default_factory=Trace)
    switched_off: tuple[str, ...] = ()
    recompile_limit: int | None = None

    @property
    def counts(self) -> Counts:
        """The compiler's counts, of which JSON adds sums."""
        told = self.report["counts"]
        numbers = {item.name: told[item.name] for item in fields(Counts)}
        return Counts(**{**numbers, "unread": tuple(told["unread"])})

    @property
    def explained(self) -> frozenset[str]:
        """The kinds of findings that follow from what is switched off."""
        return frozenset(kind for name in self.settings for kind in _EXPLAINED.get(name, ()))

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the settings that switch something off."""
        return tuple(map(setting_name, self.switched_off))

    def incidents(self, kind: str) -> list[Mapping[str, Any]]:
        """Those of one kind, as the compiler's counters tell them."""
        return [item for item in self.report["incidents"] if item["kind"] == kind]


def setting_name(setting: str) -> str:
    """The name in `module.name = value`."""
    return setting.partition(" = ")[0].rpartition(".")[2]


def is_set_by_variable(name: str, environ: Mapping[str, str]) -> bool:
    """Whether a variable in effect makes a setting what it is."""
    variables = _ENVIRONMENT.get(name, ())
    return any(flag.name in variables for flag in flags_in_effect(environ))
