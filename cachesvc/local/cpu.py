"""The instruction sets of this machine's CPU."""

from __future__ import annotations

from pathlib import Path

from cachesvc.local.machine import Machine

# The line is called `flags` on x86 and `Features` on arm.
_LINES = ("flags", "Features")


def read_isa(machine: Machine) -> frozenset[str]:
    """CPU features as /proc/cpuinfo names them; empty where the file does not say.

    On a CPU with SVE also `sve_bits_256`, the vector length that programs are given: Inductor
    compiles for one fixed length.
    """
    features = _features(machine.cpuinfo)
    length = _vector_bytes(machine.vector_length) if "sve" in features else None
    return features if length is None else features | {f"sve_bits_{8 * length}"}


def _features(cpuinfo: Path) -> frozenset[str]:
    """The features of the first processor: the kernel shows programs the same set on all."""
    try:
        # Line by line: the whole file takes milliseconds on a machine of many cores.
        with cpuinfo.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in _LINES:
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()


def _vector_bytes(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
