"""Training steps: forward under autocast, loss, backward, a compiled optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from cachesvc.runtime.workloads import Workload
from cachesvc.runtime.workloads.arguments import Compile

_PRECISION = torch.bfloat16  # its range is float32's, so that no loss has to be scaled
_RATE = 0.01
_MOMENTUM = 0.9


def training_workload(
    name: str,
    model: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor]],
    compile: Compile,
    *,
    unit: str,
) -> Workload:
    """One step for each batch of inputs and classes; the first twice.

    The optimizer makes its momentum in the first step, so that the second compiles another update.
    A step gives its loss, in the precision of the forward pass.
    """
    trained = compile(model.train())
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=_MOMENTUM)
    update = compile(optimizer.step)
    steps = [_step(trained, optimizer, update, *batch) for batch in batches]
    return Workload(
        name,
        trained,
        (steps[0], *steps),
        training=True,
        items=batches[0][1].numel(),
        unit=unit,
    )


def _step(
    model: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    update: Callable[[], object],
    inputs: Tensor,
    classes: Tensor,
) -> Callable[[], Tensor]:
    def step() -> Tensor:
        with torch.autocast(inputs.device.type, _PRECISION):
            scores = model(inputs)
            loss = functional.cross_entropy(scores.flatten(0, -2), classes.flatten())
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss.detach().to(_PRECISION)

    step.__qualname__ = f"step of {classes.numel()}"
    return step
