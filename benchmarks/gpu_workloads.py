"""Workloads for a machine with a GPU; also run on a CPU, where they take minutes."""

from __future__ import annotations

import torch

from cachesvc import Workload
from cachesvc.runtime.workloads.gpt import Gpt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def resnet50() -> Workload:
    """torchvision's ResNet-50, inference, batch 64, channels last."""
    from torchvision.models import resnet50 as build

    torch.manual_seed(0)
    model = build().eval().to(DEVICE).to(memory_format=torch.channels_last)
    images = torch.randn(64, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)
    return Workload("resnet50", model, ((images,),))


def gpt24() -> Workload:
    """A transformer written by hand: 24 layers, width 2048, one prompt of 512 tokens."""
    torch.manual_seed(0)
    model = Gpt(layers=24, width=2048, heads=16, tokens=512, vocabulary=32000).eval().to(DEVICE)
    ids = torch.randint(0, 32000, (1, 512), device=DEVICE)
    return Workload("gpt24", model, ((ids,),))
