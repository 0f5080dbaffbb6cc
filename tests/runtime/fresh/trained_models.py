"""Models that are trained, and their steps: armed, compiled and as they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from cachesvc.runtime.aot.arm import arm
from cachesvc.runtime.aot.recorder import Recorder
from cachesvc.runtime.aot.tally import tally
from cachesvc.runtime.model import read_model

Step = Callable[[Any], Any]


class Normed(nn.Module):
    """A batch norm, whose statistics the forward pass writes to, and two outputs; `frozen` has no
    gradient."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, 4)
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.drop = drop

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = torch.relu(self.norm(self.first(x)))
        inner = functional.dropout(inner, self.drop, self.training)
        return self.second(inner) * self.frozen, inner.mean()


class Counting(nn.Module):
    """A running mean, which the forward pass writes to; `frozen` has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 4)
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.tanh(self.inner(x)) * self.frozen
        with torch.no_grad():
            self.mean.mul_(0.9).add_(found.mean(0), alpha=0.1)
        return found


class Views(nn.Module):
    """Outputs that are an input, a parameter, a view of one, and a view of what was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = x @ self.weight
        names = ["turned", "same", "parameter", "view", "detached", "number"]
        made = (y.t(), x, self.bias, self.bias.view(2, 4), y.detach() * 2, 3)
        return dict(zip(names, made, strict=True))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.exp() * 2


class Mixed(nn.Module):
    """A function with a gradient of its own, tied weights, a part that is computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.inner = nn.Linear(8, 8)
        self.scores = nn.Linear(8, 20, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        inner = checkpoint(self._inner, self.words(ids), use_reentrant=False)
        scores: Tensor = self.scores(inner)
        return scores

    def _inner(self, x: Tensor) -> Tensor:
        found: Tensor = Doubled.apply(torch.tanh(self.inner(x)))
        return found


class Written(nn.Module):
    """Writes to an input that has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2) @ self.weight


def build(kind: type[nn.Module], *given: Any) -> Any:
    torch.manual_seed(0)
    return kind(*given).train()


def batch() -> Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(3))


def plain_step(model: Any) -> Any:
    output, mean = model(batch())
    (output.pow(2).sum() + mean).backward()
    return output, mean


def counting_step(model: Any) -> Any:
    output = model(batch())
    output.pow(2).sum().backward()
    return output


def input_step(model: Any) -> Any:
    x = batch().requires_grad_()
    output, _ = model(x)
    output.pow(2).sum().backward()
    return output, x.grad


def autocast_step(model: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        output, mean = model(batch())
        loss = output.float().pow(2).sum() + mean
    loss.backward()
    return output


def hooked_step(model: Any) -> Any:
    """Gradients are doubled by hooks, and added up over two calls."""
    inner = getattr(model, "_orig_mod", model)
    hooks = [p.register_hook(lambda g: g * 2) for p in inner.parameters() if p.requires_grad]
    outputs = [plain_step(model), plain_step(model)]
    for hook in hooks:
        hook.remove()
    return outputs


def evaluated_step(model: Any) -> Any:
    """A step, and a call in evaluation mode without gradients."""
    outputs = plain_step(model)
    inner = getattr(model, "_orig_mod", model)
    inner.eval()
    with torch.no_grad():
        evaluated = model(batch())
    inner.train()
    return outputs, evaluated


def freezing_step(model: Any) -> Any:
    """After it, the first layer has no gradient any more."""
    outputs = plain_step(model)
    getattr(model, "_orig_mod", model).first.requires_grad_(False)
    return outputs


def views_step(model: Any) -> Any:
    out = model(batch())
    loss = out["turned"].pow(2).sum() + 2 * out["parameter"].sum() + out["view"].pow(2).sum()
    loss.backward()
    return list(out.values())


def mixed_step(model: Any) -> Any:
    ids = torch.arange(7)
    output = model(ids)
    functional.cross_entropy(output, ids.flip(0)).backward(retain_graph=True)
    output.sum().backward()
    return output


def capture(model: Any, step: Step, folder: Path) -> Recorder:
    """What there is after one step of a model under a recorder."""
    recorder = Recorder(folder, "group")
    recorder.put({"": model})
    step(model)
    return recorder


def armed(model: Any, folder: Path) -> Any:
    """The model with the functions that were captured into a folder."""
    folders = list((folder / "group").iterdir())
    reading = {"": read_model(model)}
    arm({"": model}, reading, folders, salt="", failed=_failed, missed=lambda: None)
    return model


def _failed(unit: str, reason: str) -> None:
    raise AssertionError(f"{unit} has failed: {reason}")


def steps(
    model: Any, step: Step, called: Any = None, rate: float = 0.005, count: int = 3
) -> list[Any]:
    """Outputs, gradients and buffers of some steps with the same random numbers."""
    torch.manual_seed(5)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=rate, momentum=0.9)
    seen: list[Any] = []
    for number in range(count):
        seen += _flat(step(model if called is None else called))
        seen += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad(set_to_none=number % 2 == 0)
    return [*seen, *(b.clone() for b in model.buffers()), *model.parameters()]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value.detach().clone() if isinstance(value, Tensor) else value


def apart(ours: list[Any], theirs: list[Any]) -> float:
    """The greatest difference, over the greatest value; where more differs, infinity."""
    if len(ours) != len(theirs):
        return float("inf")
    return max(_apart(a, b) for a, b in zip(ours, theirs, strict=True))


def _apart(a: Any, b: Any) -> float:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return 0.0 if type(a) is type(b) and a == b else float("inf")
    if _layout(a) != _layout(b):
        return float("inf")
    difference = (a.double() - b.double()).abs().max()
    return float(difference / b.double().abs().max().clamp(min=1))


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.stride(), tensor.requires_grad


def compared(
    folder: Path,
    kind: type[nn.Module],
    given: tuple[Any, ...],
    step: Step,
    captured: Step | None = None,
) -> dict[str, Any]:
    """Steps of an armed model beside those of a compiled one, and of one as it was written; what it
    is armed with was captured in another step, where there is one."""
    recorder = capture(build(kind, *given), captured or step, folder)
    if recorder.reasons:
        return {"reasons": recorder.reasons}
    before = tally.hits, tally.misses
    ours = steps(armed(build(kind, *given), folder), step)
    counts = tally.hits - before[0], tally.misses - before[1]
    compiled, written = build(kind, *given), build(kind, *given)
    return {
        "reasons": [],
        "hits": counts[0],
        "misses": counts[1],
        "compiled": apart(ours, steps(compiled, step, torch.compile(compiled))),
        "written": apart(ours, steps(written, step)),
    }
