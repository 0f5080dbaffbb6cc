"""Running a graph once, so that its kernels choose how they are launched.

A Triton kernel may have been compiled in several configurations, of which it takes the quickest
when it first runs; what is captured before is not what would run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

_ALIGNMENT = 16


def run_once(
    call: Callable[[list[Any]], Any], inputs: Sequence[Any], written: Collection[int]
) -> tuple[Any, ...]:
    """Runs a graph's generated code once; its outputs.

    The inputs in `written`, which it writes to, are copied, and random numbers are those that there
    would have been: nobody sees that it has run. Raises whatever the kernels raise.
    """
    given = [
        _copied(item) if number in written or _is_misaligned(item) else item
        for number, item in enumerate(inputs)
    ]
    devices = {item.device for item in given if isinstance(item, torch.Tensor) and item.is_cuda}
    with torch.random.fork_rng(devices), torch.no_grad():
        outputs = tuple(call(given))
        for device in devices:
            torch.cuda.synchronize(device)
    return outputs


def _is_misaligned(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.data_ptr() % _ALIGNMENT != 0


def _copied(item: Any) -> Any:
    """A copy with the same strides: a plain clone closes gaps."""
    if not isinstance(item, torch.Tensor):
        return item
    copied = torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device=item.device)
    return copied.copy_(item.detach())
