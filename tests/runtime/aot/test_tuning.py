"""A graph runs once before its kernels are kept, and nobody sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cachesvc.runtime.aot.tuning import run_once


def test_inputs_stay_as_they_were() -> None:
    """What the graph writes to is a copy with the same strides and values; the rest is itself."""
    written, read = torch.zeros(4, 6)[:, ::2], torch.ones(4, 3)
    seen: list[Tensor] = []

    def call(inputs: list[Any]) -> tuple[Tensor]:
        seen.extend(inputs)
        inputs[0].add_(inputs[1])
        return (inputs[0] * 2,)

    (output,) = run_once(call, [written, read, 5], [0])
    assert seen[0] is not written
    assert seen[0].stride() == written.stride()
    assert seen[1] is read
    assert seen[2] == 5  # type: ignore[comparison-overlap]
    assert torch.equal(output, torch.full((4, 3), 2.0))
    assert torch.equal(written, torch.zeros(4, 3))


def test_memory_that_no_kernel_takes() -> None:
    """An input that is not aligned is copied to where it is."""
    askew = torch.arange(9.0)[1:]
    seen: list[Tensor] = []

    def call(inputs: list[Any]) -> tuple[()]:
        seen.extend(inputs)
        return ()

    run_once(call, [askew], [])
    assert seen[0].data_ptr() % 16 == 0
    assert torch.equal(seen[0], askew)


def test_random_numbers_are_not_used_up() -> None:
    """The next ones are those that there would have been."""
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    run_once(lambda _: (torch.rand(9),), [], [])
    assert torch.equal(torch.rand(4), expected)


def test_gradients_are_off() -> None:
    """As generated code runs without them."""
    weight = torch.nn.Parameter(torch.ones(2))
    (output,) = run_once(lambda inputs: (inputs[0] * 2,), [weight], [])
    assert not output.requires_grad
