"""AMD GPUs, read from the kernel driver's topology files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cachesvc.local.gpu import Gpu, own_gpu, select
from cachesvc.local.machine import Machine

# HSA_CAP_SRAM_EDCSUPPORTED of the kernel's kfd_sysfs.h: set while ECC of the chip's RAM is on.
_SRAM_ECC = 1 << 26
# The target features that LLVM's AMDGPU guide gives each processor; gcnArchName shows them.
_WITH_SRAMECC = frozenset({"gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
_WITH_XNACK = _WITH_SRAMECC | {
    *("gfx801", "gfx810", "gfx900", "gfx902", "gfx904", "gfx909", "gfx90c"),
    *("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
}


def rocm_gpu(machine: Machine) -> Gpu | None:
    """The GPU a ROCm build of torch would work on in this process; None without one.

    ROCR_VISIBLE_DEVICES filters first, then HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES where
    that is not set) counts within what is left: "GPU isolation techniques" of the ROCm guide.
    """
    environ = machine.environ
    left = select(read_rocm(machine), environ.get("ROCR_VISIBLE_DEVICES"))
    selection = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    return own_gpu(select(left, selection), environ)


def read_rocm(machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs of this machine in the driver's order; those closed to this process are left out."""
    nodes = (_read_node(node, machine.environ) for node in _nodes(machine.kfd))
    return tuple(gpu for gpu in nodes if gpu is not None)


def _nodes(folder: Path) -> list[Path]:
    try:
        found = [node for node in folder.iterdir() if node.name.isdecimal()]
    except OSError:
        return []
    return sorted(found, key=lambda node: int(node.name))


def _read_node(node: Path, environ: Mapping[str, str]) -> Gpu | None:
    try:
        text = (node / "properties").read_text()
    except OSError:
        # The kernel refuses the properties of a GPU that a container was not given.
        return None
    override = environ.get("HSA_OVERRIDE_GFX_VERSION")
    return gpu_of(text, environ.get(f"HSA_OVERRIDE_GFX_VERSION_{node.name}", override), environ)


def gpu_of(properties: str, override: str | None, environ: Mapping[str, str]) -> Gpu | None:
    """The GPU that a node's `properties` file describes; None for a CPU node.

    `override` is HSA_OVERRIDE_GFX_VERSION ("10.3.0"), which makes the runtime see another chip.
    """
    values = dict(_pairs(properties))
    version = values.get("gfx_target_version", 0)
    if not version:
        return None
    gfx = _gfx(*_version_parts(version, override))
    ecc = bool(values.get("capability", 0) & _SRAM_ECC)
    arch = _arch_name(gfx, ecc=ecc, xnack=environ.get("HSA_XNACK") == "1")
    place = f"{values.get('domain', 0):04x}:{values.get('location_id', 0):04x}"
    return Gpu(arch, gfx, f"GPU-{values.get('unique_id', 0):016x}", place)


def _pairs(properties: str) -> Iterator[tuple[str, int]]:
    for line in properties.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdecimal():
            yield name, int(value)


def _version_parts(version: int, override: str | None) -> tuple[int, int, int]:
    """Major, minor, stepping: the kernel writes 9.4.2 as 90402."""
    parts = override.split(".") if override else []
    if len(parts) == 3 and all(part.isdecimal() for part in parts):
        return int(parts[0]), int(parts[1]), int(parts[2])
    return version // 10000, version // 100 % 100, version % 100


def _gfx(major: int, minor: int, stepping: int) -> str:
    return f"gfx{major}{minor:x}{stepping:x}"


def _arch_name(gfx: str, *, ecc: bool, xnack: bool) -> str:
    """gcnArchName: "gfx942:sramecc+:xnack-", or the gfx name alone where no feature applies."""
    parts = [gfx]
    if gfx in _WITH_SRAMECC:
        parts.append(f"sramecc{'+' if ecc else '-'}")
    if gfx in _WITH_XNACK:
        parts.append(f"xnack{'+' if xnack else '-'}")
    return ":".join(parts)
