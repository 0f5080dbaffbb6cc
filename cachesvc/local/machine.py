"""Where the facts about this machine are read from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


def _prefixes() -> tuple[Path, ...]:
    return tuple(Path(prefix) for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)))


@dataclass(frozen=True, slots=True)
class Machine:
    """The places that say what this machine is; a test gives recorded ones.

    `torch` is the folder of the torch package, None for the one that this interpreter would
    import. `nvml` and `libcuda` are names or paths for the dynamic loader.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    arch: str = field(default_factory=lambda: os.uname().machine)
    torch: Path | None = None
    nvml: str = "libnvidia-ml.so.1"
    libcuda: str = "libcuda.so.1"
    kfd: Path = Path("/sys/class/kfd/kfd/topology/nodes")
    cpuinfo: Path = Path("/proc/cpuinfo")
    vector_length: Path = Path("/proc/sys/abi/sve_default_vector_length")
    maps: Path = Path("/proc/self/maps")
    loader_cache: Path = Path("/etc/ld.so.cache")
    prefixes: tuple[Path, ...] = field(default_factory=_prefixes)
    confstr: Callable[[str], str | None] = os.confstr
