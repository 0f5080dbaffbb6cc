"""demo:resnet: ResNet-50 written with plain torch, named and built as torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cachesvc.runtime.workloads import Workload
from cachesvc.runtime.workloads.arguments import Compile
from cachesvc.runtime.workloads.device import device
from cachesvc.runtime.workloads.sizes import LARGE, SMALL, TINY, bundle_name
from cachesvc.runtime.workloads.training import training_workload

_EXPANSION = 4
"""How many times as many channels a block gives as its inner convolutions have."""


@dataclass(frozen=True, slots=True)
class _Size:
    blocks: tuple[int, ...]
    width: int
    classes: int
    images: int
    pixels: int


_SIZES = {
    TINY: _Size(blocks=(1, 1), width=8, classes=10, images=2, pixels=32),
    SMALL: _Size(blocks=(3, 4, 6, 3), width=64, classes=1000, images=4, pixels=64),
    LARGE: _Size(blocks=(3, 4, 6, 3), width=64, classes=1000, images=64, pixels=224),
}


class Bottleneck(nn.Module):
    """Three convolutions around a residual: (batch, channels, height, width) to four times
    `width` channels, and to every `stride`-th pixel."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        given = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, given, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(given)
        self.downsample = (
            nn.Sequential(
                nn.Conv2d(channels, given, 1, stride=stride, bias=False), nn.BatchNorm2d(given)
            )
            if stride != 1 or channels != given
            else None
        )

    def forward(self, pixels: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(pixels)))
        inner = functional.relu(self.bn2(self.conv2(inner)))
        inner = self.bn3(self.conv3(inner))
        return functional.relu(inner + (self.downsample(pixels) if self.downsample else pixels))


class ResNet(nn.Module):
    """Images (batch, 3, height, width) to scores (batch, classes).

    `blocks` are those of each stage; each stage after the first halves the image and doubles the
    width. With (3, 4, 6, 3), width 64 and 1000 classes it is ResNet-50.
    """

    def __init__(self, blocks: Sequence[int], width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = len(blocks)
        channels = width
        for stage, count in enumerate(blocks):
            setattr(self, f"layer{stage + 1}", _stage(channels, width << stage, count, stage > 0))
            channels = (width << stage) * _EXPANSION
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        pixels = self.maxpool(functional.relu(self.bn1(self.conv1(images))))
        for stage in range(1, self.stages + 1):
            pixels = getattr(self, f"layer{stage}")(pixels)
        scores: Tensor = self.fc(pixels.mean((2, 3)))
        return scores


def _stage(channels: int, width: int, count: int, halves: bool) -> nn.Sequential:
    first = Bottleneck(channels, width, stride=2 if halves else 1)
    others = (Bottleneck(width * _EXPANSION, width, stride=1) for _ in range(count - 1))
    return nn.Sequential(first, *others)


def workload(
    size: str = SMALL,
    shapes: Sequence[int] = (),
    train: bool = False,
    compile: Compile = torch.compile,
) -> Workload:
    """ResNet-50, one batch of 4 images of 64 x 64; on the GPU where there is one.

    `shapes` are batch sizes.
    """
    torch.manual_seed(0)
    chosen, name = _SIZES[size], bundle_name("demo-resnet", size, train)
    counts = tuple(shapes) or (chosen.images,)
    with device():
        model = ResNet(chosen.blocks, chosen.width, chosen.classes).eval()
        batches = [_images(count, chosen.pixels) for count in counts]
        classes = [torch.randint(0, chosen.classes, (count,)) for count in counts]
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if train:
        _begin_plainly(model)
        pairs = list(zip(batches, classes, strict=True))
        return training_workload(name, model, pairs, compile, unit="images")
    calls = [(images,) for images in batches]
    return Workload(name, model, calls, items=counts[0], unit="images")


def _begin_plainly(model: ResNet) -> None:
    """Each block begins as its residual alone, as torchvision's `zero_init_residual` has it: else
    rounding alone, in 50 layers normalized over few images, moves the loss by three percent."""
    for block in model.modules():
        if isinstance(block, Bottleneck):
            nn.init.zeros_(block.bn3.weight)


def _images(count: int, pixels: int) -> Tensor:
    images = torch.randn(count, 3, pixels, pixels)
    return images.to(memory_format=torch.channels_last)
