"""Models and calls of benchmarks.gpu_aot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WORKLOADS = {
    "resnet50": ("demo:resnet", "large"),
    "gpt24": ("demo:gpt", "large"),
    "llama": ("benchmarks.gpu_workloads:llama", None),
    "llama8b": ("benchmarks.gpu_workloads:llama8b", None),
    "resnet50-training": ("demo:resnet", "large"),
    "gpt24-training": ("demo:gpt", "large"),
}
TRAINING = "-training"
SMOKE = ("convnet", "gpt", "mlp", "convnet-training")


def workload_of(name: str) -> tuple[Any, list[Callable[[Any], Any]]]:
    """A workload's model, and functions that make its calls with what stands for the model."""
    from cachesvc.core.workload_options import WorkloadOptions
    from cachesvc.runtime.workloads import load_workload

    target, size = WORKLOADS[name]
    workload = load_workload(target, WorkloadOptions(size=size))
    if name.endswith(TRAINING):
        return workload.model.train(), [_step(workload.model, *workload.calls[0])]
    return workload.model, [_call(workload.calls[0])]


def _call(arguments: Any) -> Callable[[Any], Any]:
    if isinstance(arguments, dict):
        return lambda model: model(**arguments)
    return lambda model: model(*arguments)


def _step(model: Any, inputs: Any) -> Callable[[Any], Any]:
    """A step of training, which gives the loss."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(model: Any) -> Any:
        with torch.autocast(inputs.device.type, torch.bfloat16):
            loss = model(inputs).float().logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def _gradients(inputs: Any) -> Callable[[Any], Any]:
    """One pass forward and backward, which gives all gradients."""
    import torch

    def gradients(model: Any) -> Any:
        model.zero_grad()
        model(inputs).pow(2).mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    return gradients


def small_model(name: str) -> tuple[Any, list[Callable[[Any], Any]]]:
    """The same of a small model."""
    import torch
    from torch import nn

    from benchmarks.gpu_workloads import Small
    from cachesvc.runtime.workloads.gpt import Gpt

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    if name == "gpt":
        model: Any = Gpt(layers=2, width=64, heads=4, tokens=32, vocabulary=256)
        inputs = torch.randint(0, 256, (2, 32))
    elif name.startswith("convnet"):
        model = Small(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )
        inputs = torch.randn(4, 3, 32, 32)
    else:
        widths = nn.Linear(64, 3000), nn.Linear(3000, 16)
        model = Small(widths[0], nn.GELU(), nn.LayerNorm(3000), nn.Softmax(-1), widths[1])
        inputs = torch.randn(8, 64)
    inputs = inputs.to(device)
    if name.endswith(TRAINING):
        return model.train().to(device), [_gradients(inputs)]
    return model.eval().to(device), [_call((inputs,))]
