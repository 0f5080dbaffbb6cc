"""Workloads for a machine with a GPU; also run on a CPU, where they take minutes."""

from __future__ import annotations

import torch

from cachesvc import Workload
from cachesvc.runtime.workloads.gpt import Gpt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Small(torch.nn.Module):
    """A few layers, one after the other."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            values = layer(values)
        return values


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


def llama() -> Workload:
    """A Llama of transformers: 16 layers, width 2048, bfloat16, one prompt of 512 tokens."""
    return _llama("llama-1b", layers=16, width=2048, inner=8192)


def llama8b() -> Workload:
    """The same of the shape of those with eight billion parameters."""
    return _llama("llama-8b", layers=32, width=4096, inner=14336)


def _llama(name: str, layers: int, width: int, inner: int) -> Workload:
    """Made on the device itself: drawing so many weights takes minutes elsewhere."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        use_cache=False,
        dtype=torch.bfloat16,
    )
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).eval().to(torch.bfloat16)
    ids = torch.randint(0, 128256, (1, 512), device=DEVICE)
    return Workload(name, model, ({"input_ids": ids},))


def resnet50_training() -> Workload:
    """torchvision's ResNet-50: a training step under autocast, with a compiled optimizer."""
    from torchvision.models import resnet50 as build

    torch.manual_seed(0)
    model = torch.compile(build().train().to(DEVICE).to(memory_format=torch.channels_last))
    images = torch.randn(64, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    update = torch.compile(optimizer.step)

    def step() -> torch.Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss.detach()

    return Workload("resnet50-training", model, (step,), training=True)
