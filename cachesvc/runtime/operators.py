"""The packages that register operators beyond torch's own, and what stands for each."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

import torch

from cachesvc.core.digest import digest_json
from cachesvc.runtime.code import code_digest
from cachesvc.runtime.functions import layers

# Namespaces of torch's own, also those that it registers only when a part of it is loaded: the
# environment has its version.
_OWN = frozenset(
    {
        *(
            "aten",
            "prim",
            "prims",
            "rngprims",
            "debugprims",
            "debug_mode_ops",
            "export",
            "inductor",
        ),
        *("inductor_prims", "_inductor_test", "_inductor_debug", "mkl", "mkldnn", "onednn"),
        *("mkldnn_prepacked", "profiler", "quantization", "quantized", "quantized_decomposed"),
        *("_quantized", "_test", "_native", "sparse", "static_runtime", "symm_mem", "_dtensor"),
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "fsdp"),
        *(
            "dist_autograd",
            "device_mesh",
            "streams",
            "bucketing",
            "flex_lib",
            "torch_attn",
            "cplib",
        ),
        *("onnx", "onnx_symbolic", "semi_structured", "ao", "metal", "metal_prepack", "triton"),
        *("vulkan", "vulkan_prepack", "vulkan_quantized", "xnnpack", "prepacked", "pippy", "xpu"),
        *("cuda", "cudnn", "miopen", "mps", "hip", "_torch_testing", "higher_order", "backend"),
        *("cuda_utils", "nvprims", "tensorexpr", "tnc", "torch_ipex_internal", "_", "static"),
    }
)


def operator_packages() -> Iterator[tuple[str, str]]:
    """Each namespace of operators that is not torch's, and what identifies its code.

    That is the version of the package of its name, else a digest of the Python code of its
    operators; `unknown` for operators of a library that is no package.
    """
    names = _namespaces()
    for name in sorted(names - _OWN):
        yield name, _version(name) or _code(name) or "unknown"


def _namespaces() -> set[str]:
    """The namespaces of all operators; where torch hides them, of those that Python defines."""
    listed = getattr(torch._C, "_dispatch_get_all_op_names", None)
    names: Iterable[str] = listed() if listed is not None else defined()
    return {name.partition("::")[0] for name in names}


def defined() -> dict[str, Any]:
    """The operators that were defined in Python as functions, by their qualified names."""
    known = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", None)
    return dict(known) if known is not None else {}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _code(namespace: str) -> str | None:
    own = sorted(defined().items())
    found = [(name, layers(op)) for name, op in own if name.startswith(f"{namespace}::")]
    codes = [[name, *(code_digest(f.__code__) for f in functions)] for name, functions in found]
    return f"sha256:{digest_json(codes)[:16]}" if codes else None
