"""Environment variables that switch the compiler or its caches off, or make starts longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cachesvc.core.finding import Finding, Severity

_TRITONS_WORDS = frozenset({"1", "true", "on", "yes", "y"})

_NO_CACHES = "every cache of torch.compile is off: each start compiles everything"
_NOTHING = "torch.compile does nothing: the model runs as it was written"
_TUNES = (
    "kernels are measured against each other when they are compiled: a cold start takes much"
    " longer; the choices travel in a bundle"
)
_ELSEWHERE = "Triton keeps its kernels where tccache does not look: they are in no bundle"


def _is_one(value: str) -> bool:
    """As torch and the CUDA driver read most switches: any other word is off."""
    return value == "1"


def _is_true(value: str) -> bool:
    """As Triton reads switches."""
    return value.lower() in _TRITONS_WORDS


def _is_no_zero(value: str) -> bool:
    return value not in ("", "0")


def _is_zero(value: str) -> bool:
    """As torch's settings read a variable that they obey in any case: an empty one is off, too."""
    return value in ("", "0")


def _is_not_one(value: str) -> bool:
    return value != "1"


def _is_given(value: str) -> bool:
    return bool(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """A variable, the values of it that matter, and what follows from them."""

    name: str
    matters: Callable[[str], bool]
    what: str
    severity: Severity = "disease"


FLAGS = (
    Flag("TCCACHE_DISABLE", _is_no_zero, "tccache does nothing at all"),
    Flag("TORCHINDUCTOR_FORCE_DISABLE_CACHES", _is_no_zero, _NO_CACHES),
    Flag("TORCH_COMPILE_FORCE_DISABLE_CACHES", _is_no_zero, _NO_CACHES),
    Flag(
        "TORCHINDUCTOR_FX_GRAPH_CACHE",
        _is_zero,
        "compiled graphs are neither kept nor looked for: each start compiles them",
    ),
    Flag(
        "TORCHINDUCTOR_AUTOGRAD_CACHE",
        _is_zero,
        "AOTAutograd keeps nothing: each start traces every graph again",
    ),
    Flag("TORCH_COMPILE_DISABLE", _is_one, _NOTHING),
    Flag("TORCHDYNAMO_DISABLE", _is_one, _NOTHING),
    Flag("TRITON_ALWAYS_COMPILE", _is_true, "Triton builds every kernel again at each start"),
    Flag("TRITON_INTERPRET", _is_true, "Triton's kernels are interpreted, not compiled"),
    Flag("CUDA_CACHE_DISABLE", _is_one, "the driver keeps nothing of what it compiles from PTX"),
    Flag("CUDA_FORCE_PTX_JIT", _is_one, "the driver compiles every kernel from PTX at each start"),
    Flag("VLLM_DISABLE_COMPILE_CACHE", _is_no_zero, "vLLM compiles everything at each start"),
    Flag(
        "TORCHINDUCTOR_FREEZING",
        _is_one,
        "weights become part of the graphs, and AOTAutograd keeps no such graph",
    ),
    Flag("TRITON_CACHE_MANAGER", _is_given, _ELSEWHERE, "hint"),
    Flag("TRITON_REMOTE_CACHE_BACKEND", _is_given, _ELSEWHERE, "hint"),
    Flag(
        "TRITON_KERNEL_OVERRIDE",
        _is_true,
        "Triton takes kernels from its override folder instead of what was compiled",
        "hint",
    ),
    *(
        Flag(f"TORCHINDUCTOR_{name}", _is_one, _TUNES, "hint")
        for name in (
            *("MAX_AUTOTUNE", "MAX_AUTOTUNE_GEMM", "MAX_AUTOTUNE_POINTWISE"),
            "COORDINATE_DESCENT_TUNING",
        )
    ),
    Flag(
        "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES",
        _is_not_one,
        "a dimension that changes is not made dynamic: each size is compiled by itself",
        "hint",
    ),
    Flag(
        "TORCHDYNAMO_SUPPRESS_ERRORS",
        _is_given,
        "what fails to compile runs as it was written, without a word",
        "hint",
    ),
    Flag(
        "TORCH_COMPILE_CACHE_KEY_TAG",
        _is_given,
        "it is part of every key: what was compiled under another tag is not found",
        "hint",
    ),
    Flag(
        "TORCH_COMPILE_DEBUG",
        _is_one,
        "each compile writes all that it does to the working directory",
        "hint",
    ),
)


def flags_in_effect(environ: Mapping[str, str]) -> Iterator[Flag]:
    """The variables that are set to a value that matters."""
    for flag in FLAGS:
        if flag.name in environ and flag.matters(environ[flag.name]):
            yield flag


def flag_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """What follows from each variable in effect, diseases and hints."""
    for flag in flags_in_effect(environ):
        yield Finding(
            "flag",
            flag.severity,
            flag.what,
            where=f"{flag.name}={environ[flag.name]}",
            cure=f"unset {flag.name}{_unless(flag)}",
        )


def _unless(flag: Flag) -> str:
    return "" if flag.severity == "disease" else ", unless it is meant"
