"""Where the workloads of this library run."""

from __future__ import annotations

import torch


def device() -> torch.device:
    """The GPU where there is one, else the CPU.

    As a context it makes models there: a billion random weights take a CPU many seconds.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
