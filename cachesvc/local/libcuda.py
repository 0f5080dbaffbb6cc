"""NVIDIA GPUs as CUDA itself counts them, asked in a child process.

cuInit in this process would break every child it forks later (data loaders, compile workers).
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import dataclass

from cachesvc.local.gpu import Gpu
from cachesvc.local.machine import Machine

_TIMEOUT_S = 30
# 75 and 76 are CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h.
_QUESTIONS = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
number = ctypes.c_int()
def ask(function, *arguments):
    status = getattr(cuda, function)(ctypes.byref(number), *arguments)
    return None if status else number.value
version = ask("cuDriverGetVersion")
print(f"{version // 1000}.{version % 1000 // 10}", flush=True)
count = ask("cuDeviceGetCount") or 0 if cuda.cuInit(0) == 0 else 0
for ordinal in range(count):
    device = ask("cuDeviceGet", ordinal)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, device)
    major = ask("cuDeviceGetAttribute", 75, device)
    minor = ask("cuDeviceGetAttribute", 76, device)
    print(f"{major}.{minor} {name.value.decode()}")
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The CUDA version of the driver and the visible GPUs, in CUDA's order."""

    cuda: str
    gpus: tuple[Gpu, ...]


def ask_libcuda(machine: Machine) -> Answer | None:
    """What a child process learns from libcuda under the same environment variables.

    None where there is no libcuda, no interpreter to start, or the child fails or takes longer
    than 30 s. Costs the start of an interpreter and of CUDA, so it is for the cases that NVML
    cannot decide.
    """
    if not sys.executable or not _loads(machine.libcuda):
        return None
    command = [sys.executable, "-I", "-S", "-c", _QUESTIONS, machine.libcuda]
    try:
        child = subprocess.run(
            command,
            env=dict(machine.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    cuda, *lines = child.stdout.splitlines()
    return Answer(cuda, tuple(_gpu(line) for line in lines))


def _loads(library: str) -> bool:
    """Whether the dynamic loader has it; loading alone starts no CUDA, and spares a child."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _gpu(line: str) -> Gpu:
    capability, _, name = line.partition(" ")
    return Gpu(name, capability)
