"""The context: what moves the compiler's keys beyond model and environment."""

from __future__ import annotations

import pytest
import torch

from cachesvc.runtime.context import read_context

pytestmark = pytest.mark.xdist_group("runtime")


def changed(before: dict[str, str]) -> dict[str, str | None]:
    now = dict(read_context())
    return {n: now.get(n) for n in before.keys() | now.keys() if before.get(n) != now.get(n)}


def test_what_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dtype, precision, threads, determinism and flags show under names that a user knows."""
    before = dict(read_context())
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
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
        "variable TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "default dtype": "torch.float64",
        "matmul precision": "medium",
        "deterministic": "True",
        "threads": str(threads + 1),
    }


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
