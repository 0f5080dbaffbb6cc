"""A digest of a model's weights, from a few elements of each: equal on every device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import torch

from cachesvc.core.outputs import MAX_SAMPLES
from cachesvc.runtime.backend import original
from cachesvc.runtime.functions import closure


def weights_digest(model: Any) -> str:
    """A digest of name, dtype, shape and up to sixteen elements of every parameter and buffer.

    `model` may be compiled or not, a function, or several models, in a sequence or by name. A
    weight that changed in none of the elements looked at goes unnoticed; training changes all.
    Empty where a weight cannot be read, as on the meta device.
    """
    digest = hashlib.sha256()
    samples = []
    try:
        for name, tensor in _weights("", model):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            if tensor.is_meta:
                return ""
            samples.append(_sample(tensor))
        for content in _brought(samples):
            digest.update(content)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return ""  # a subclass of Tensor, or a lazy parameter, that has no bytes to look at
    return digest.hexdigest()


def _brought(samples: list[torch.Tensor]) -> Iterator[bytes]:
    """The bytes of each, in order; each device is waited for once."""
    by_device: dict[torch.device, list[int]] = {}
    for index, sample in enumerate(samples):
        by_device.setdefault(sample.device, []).append(index)
    found: dict[int, bytes] = {}
    for indices in by_device.values():
        together = torch.cat([samples[index] for index in indices]).cpu().numpy().tobytes()
        at = 0
        for index in indices:
            found[index] = together[at : at + len(samples[index])]
            at += len(samples[index])
    return (found[index] for index in range(len(samples)))


def _weights(place: str, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    inner = original(model)
    if isinstance(inner, torch.nn.Module):
        for tensors in (inner.named_parameters(), inner.named_buffers()):
            for name, tensor in tensors:
                yield f"{place}{name.replace('_orig_mod.', '')}", tensor
    elif isinstance(inner, Mapping):
        for name, item in inner.items():
            yield from _weights(f"{place}{name}: ", item)
    elif isinstance(inner, list | tuple):
        for index, item in enumerate(inner):
            yield from _weights(f"{place}{index}: ", item)
    else:
        for name, item in (("self", getattr(inner, "__self__", None)), *_bound(inner)):
            if isinstance(original(item), torch.nn.Module):
                yield from _weights(f"{place}{name}: ", item)


def _bound(function: Any) -> Iterator[tuple[str, Any]]:
    return closure(function) if isinstance(function, FunctionType) else iter(())


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Bytes of up to sixteen elements, far apart; nothing leaves the device."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    step = max(1, -(-len(flat) // MAX_SAMPLES))
    return flat[::step].contiguous().view(torch.uint8)
