"""The state of thread and process: whatever decides how torch computes is seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from cachesvc.runtime.aot.state import is_transformed, state_facts


@contextmanager
def setting(change: Callable[[Any], None], value: Any, back: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(back)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "default device": lambda: torch.device("meta"),
    "determinism": lambda: setting(torch.use_deterministic_algorithms, True, False),
    "precision": lambda: setting(torch.set_float32_matmul_precision, "medium", "highest"),
    "mkldnn": lambda: setting(torch._C._set_mkldnn_enabled, False, True),
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
}


@pytest.mark.parametrize("name", MODES)
def test_a_mode_is_seen_and_passes(name: str) -> None:
    """Its facts are others, can be a key, and are as before once it is off."""
    before = state_facts()
    with MODES[name]():
        assert state_facts() != before
        hash(state_facts())
        assert not is_transformed()
    assert state_facts() == before


def test_another_thread_has_its_own_state() -> None:
    """Gradients are switched off here and not there."""
    found: list[Any] = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: found.append(state_facts()))
        thread.start()
        thread.join()
        assert found[0] != state_facts()


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Dispatches, torch.autograd.forward_ad.dual_level])
def test_a_mode_that_sees_each_operation_is_a_transform(mode: Any) -> None:
    """Compiled code would pass it by; one among default devices, too."""
    assert not is_transformed()
    with mode():
        assert is_transformed()
        with torch.device("cpu"):
            assert is_transformed()
    assert not is_transformed()


def test_vmap_is_a_transform() -> None:
    """What a function sees inside it is not what it is given outside."""
    found = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        found.append(is_transformed())
        return x

    torch.func.vmap(inner)(torch.ones(2))
    assert found == [True]
