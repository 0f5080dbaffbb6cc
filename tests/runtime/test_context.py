"""The context: what moves the compiler's keys beyond model and environment."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from fresh_processes import FreshProcesses

from cachesvc.runtime.context import read_context

pytestmark = pytest.mark.xdist_group("runtime")


def changed(before: dict[str, str]) -> dict[str, str | None]:
    now = dict(read_context())
    return {n: now.get(n) for n in before.keys() | now.keys() if before.get(n) != now.get(n)}


def test_what_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dtype, precision, threads, determinism and flags show under names that a user knows."""
    before = dict(read_context())
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads + 1)
    try:
        found = changed(before)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    # Inductor has a setting of the same name, which torch moves along where it is imported.
    found.pop("inductor deterministic", None)
    assert found == {
        "variable TRITON_F32_DEFAULT": "ieee",
        "default dtype": "torch.float64",
        "matmul precision": "medium",
        "deterministic": "True",
        "threads": str(threads + 1),
    }


SWITCHES: dict[str, tuple[Any, str, Any]] = {
    "attention flash": (torch.backends.cuda, "enable_flash_sdp", False),
    "attention memory-efficient": (torch.backends.cuda, "enable_mem_efficient_sdp", False),
    "attention math": (torch.backends.cuda, "enable_math_sdp", False),
    "attention cudnn": (torch.backends.cuda, "enable_cudnn_sdp", False),
    "cudnn": (torch.backends.cudnn, "enabled", False),
    "cudnn benchmark": (torch.backends.cudnn, "benchmark", True),
    "cudnn deterministic": (torch.backends.cudnn, "deterministic", True),
    "cudnn tf32": (torch.backends.cudnn, "allow_tf32", False),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_of_kernels_are_named(name: str) -> None:
    """Each switch that decides which kernels a graph gets is one component."""
    owner, switch, value = SWITCHES[name]
    before = dict(read_context())

    def turn(value: Any) -> None:
        if callable(getattr(owner, switch)):
            getattr(owner, switch)(value)
        else:
            setattr(owner, switch, value)

    turn(value)
    try:
        found = changed(before)
    finally:
        turn(not value)
    assert found == {name: str(value)}


@pytest.mark.parametrize("name", ["TRITON_F32_DEFAULT", "TRITON_DEFAULT_FP_FUSION", "CXX"])
def test_flags_of_triton_are_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They are part of Triton's own keys."""
    before = dict(read_context())
    monkeypatch.setenv(name, "0")
    assert changed(before) == {f"variable {name}": "0"}


def test_operators_of_others_are_named(fresh: FreshProcesses) -> None:
    """By the version of the package of their name, else by their code; none are torch's own."""
    before, first, again, other, packaged = fresh.run("""
from importlib import metadata
from cachesvc.core.context import op_packages
from cachesvc.runtime.context import read_context

def define(namespace, factor):
    def grow(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if factor == 2 else x + factor
    def shrink(x: torch.Tensor) -> torch.Tensor:
        return x - 1
    function = grow if factor == 2 else shrink
    return torch.library.custom_op(namespace + "::grow", function, mutates_args=())

def named():
    return dict(op_packages(read_context()))

result = [named()]
for namespace, factor in (("home_made", 2), ("home_made", 2), ("home_made", 3), ("click", 2)):
    kept = define(namespace, factor)
    result.append(named())
result.append(metadata.version("click"))
result[-2:] = [result[-2]["ops click"] == result[-1]]
""")
    assert before == {}
    assert set(first) == {"ops home_made"}
    assert first == again != other
    assert packaged


def test_a_compile_does_not_count(fresh: FreshProcesses) -> None:
    """A push after the calls sees the context of the start: torch sets variables and settings,
    registers operators and loads parts of itself while it compiles."""
    same = fresh.run(
        """
from cachesvc.runtime.context import read_context
before = read_context()
model = torch.compile(Plain())
model(ones()).sum().backward()
result = [str(item) for item in before.diff(read_context())]
""",
    )
    assert same == []


def test_reading_loads_no_compiler(fresh: FreshProcesses) -> None:
    """A start reads it while the compiler may still be loading beside it, or never will be."""
    loaded = fresh.run(
        """
from cachesvc.runtime.context import read_context
read_context()
result = [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
""",
        own=True,
    )
    assert loaded == []


def test_changed_settings_are_named_and_unchanged_ones_are_not() -> None:
    """Only what the user has set, and to something else than the default."""
    config = pytest.importorskip("torch._inductor.config")
    before = dict(read_context())
    with config.patch(epilogue_fusion=False, max_autotune=False):
        found = changed(before)
    assert found == {"inductor epilogue_fusion": "False"}


@pytest.mark.parametrize(
    "name",
    [
        *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_HOME", "TORCH_LOGS"),
        *("TORCHINDUCTOR_COMPILE_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_TRACE", "TRITON_HOME"),
        *("HOME", "USER", "HOSTNAME", "OMP_NUM_THREADS"),
    ],
)
def test_places_and_logs_are_no_context(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What says where things lie or how much is printed explains no miss."""
    before = dict(read_context())
    monkeypatch.setenv(name, "somewhere")
    assert changed(before) == {}


def test_differences_read_as_a_sentence() -> None:
    """Old value and new, and the side that has none."""
    here = read_context()
    (difference,) = here.diff({**here, "threads": "64"})
    assert str(difference) == f"threads: {here['threads']} -> 64"
    assert str(here.diff({**here, "new": "1"})[0]) == "new: absent -> 1"


def test_limits_of_recompiles_do_not_count() -> None:
    """They are in no key, and regions raise them while they are compiled."""
    config = importlib.import_module("torch._dynamo.config")
    before = read_context()
    with config.patch(recompile_limit=99, accumulated_recompile_limit=999):
        assert read_context() == before
