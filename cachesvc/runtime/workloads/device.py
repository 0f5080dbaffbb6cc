"""Where the workloads of this library run."""

from __future__ import annotations

import torch


def device() -> str:
    """The GPU where there is one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"
