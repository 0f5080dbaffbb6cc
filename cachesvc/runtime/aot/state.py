"""What of this thread and process decides how torch computes: no argument says it."""

from __future__ import annotations

from typing import Any

import torch

Facts = tuple[Any, ...]


def state_facts() -> Facts:
    """Plain values; equal where a compiled function may be used that was made elsewhere.

    Modes of threads (gradients, inference, autocast, default device), and switches of the process
    (default dtype, determinism, precision, attention kernels). What this torch lacks counts as
    None.
    """
    return tuple([read() for read in _READERS])


def is_transformed() -> bool:
    """Whether calls run inside a transform, a mode or a trace of torch's: compiled code made
    outside would pass it by."""
    return any(read() for read in _TRANSFORMS)


def _autocast(device: str) -> Any:
    if not torch.is_autocast_enabled(device):
        return False
    return [str(torch.get_autocast_dtype(device)), torch.is_autocast_cache_enabled()]


def _function_mode() -> Any:
    """The default device where one is set; None without any mode, and what nobody knows else."""
    count = _count("_len_torch_function_stack")()
    if not count:
        return None
    from torch.utils._device import DeviceContext

    modes = [torch._C._get_function_stack_at(index) for index in range(count)]
    return [str(mode.device) if type(mode) is DeviceContext else str(type(mode)) for mode in modes]


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
    _function_mode,
)
_TRANSFORMS = (
    _count("_len_torch_dispatch_stack"),
    _functorch(),
    _switch("_get_tracing_state"),
    torch.compiler.is_compiling,
)
