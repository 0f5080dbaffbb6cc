"""What of this thread and process decides how torch computes: no argument says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Facts = tuple[Any, ...]


def state_facts() -> Facts:
    """Plain values; equal where a compiled function may be used that was made elsewhere.

    Modes of threads (gradients, inference, autocast, default device), and switches of the process
    (default dtype, determinism, precision, attention kernels, its place among several). What this
    torch lacks counts as None; what it refuses to tell, as where its older and newer settings were
    mixed, by the refusal.
    """
    try:
        return tuple([read() for read in _READERS])
    except RuntimeError:
        return tuple([_told(read) for read in _READERS])


def _told(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError as error:
        return f"refused: {error}"[:80]


def _place() -> Any:
    """Rank and number of the processes that compute together: Dynamo takes them for constant."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return (distributed.get_rank(), distributed.get_world_size())


def is_transformed() -> bool:
    """Whether calls run inside a transform, a mode or a trace of torch's: compiled code made
    outside would pass it by."""
    return any(read() for read in _TRANSFORMS)


def _autocast(device: str) -> Any:
    if not torch.is_autocast_enabled(device):
        return False
    return (str(torch.get_autocast_dtype(device)), torch.is_autocast_cache_enabled())


def _default_device() -> Any:
    """The default device where one is set, else None."""
    modes = _function_modes()
    return tuple(str(mode.device) for mode in modes if _is_device(mode)) if modes else None


def _has_function_mode() -> bool:
    """Whether a mode is on that sees, and may change, every function of torch that is called."""
    modes = _function_modes()
    return bool(modes) and not all(map(_is_device, modes))


def _function_modes() -> list[Any]:
    count = _count("_len_torch_function_stack")()
    return [torch._C._get_function_stack_at(index) for index in range(count)]


def _is_device(mode: Any) -> bool:
    from torch.utils._device import DeviceContext

    return type(mode) is DeviceContext


def _has_dual_level() -> bool:
    """Whether gradients are computed forward: a level is entered, and tensors may carry them."""
    level: int = getattr(torch.autograd.forward_ad, "_current_level", -1)
    return level >= 0


def _count(name: str) -> Any:
    """A counter of torch's C++ part; 0 where it does not have it."""
    return getattr(torch._C, name, lambda: 0)


def _switch(name: str) -> Any:
    return getattr(torch._C, name, lambda: None)


def _functorch() -> Any:
    functorch = getattr(torch._C, "_functorch", None)
    return getattr(functorch, "peek_interpreter_stack", lambda: None)


_REDUCED_FP16 = _switch("_get_cublas_allow_fp16_reduced_precision_reduction")
_REDUCED_BF16 = _switch("_get_cublas_allow_bf16_reduced_precision_reduction")
_READERS = (
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    lambda: _autocast("cpu"),
    lambda: _autocast("cuda"),
    lambda: str(torch.get_default_dtype()),
    torch.are_deterministic_algorithms_enabled,
    torch.get_deterministic_debug_mode,
    _switch("_get_mkldnn_enabled"),
    _switch("_get_cudnn_enabled"),
    _switch("_get_cudnn_benchmark"),
    _switch("_get_flash_sdp_enabled"),
    _switch("_get_mem_efficient_sdp_enabled"),
    _switch("_get_math_sdp_enabled"),
    _switch("_get_cudnn_sdp_enabled"),
    _switch("_get_float32_matmul_precision"),
    _switch("_get_cublas_allow_tf32"),
    _switch("_get_cudnn_allow_tf32"),
    lambda: str(_REDUCED_FP16()),
    lambda: str(_REDUCED_BF16()),
    _default_device,
    _place,
)
_TRANSFORMS = (
    _count("_len_torch_dispatch_stack"),
    _functorch(),
    _switch("_get_tracing_state"),
    torch.compiler.is_compiling,
    _has_function_mode,
    _has_dual_level,
)
