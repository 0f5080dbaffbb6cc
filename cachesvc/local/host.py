"""This machine: its environment fingerprint and what it offers to native code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cachesvc.core.components import Components
from cachesvc.core.errors import UsageError
from cachesvc.core.fields import MAX_ISSUES, named, shown
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.local.cpu import read_isa
from cachesvc.local.fingerprint import (
    TorchBuild,
    glibc_version,
    package_folder,
    platform_name,
    python_abi,
    read_torch,
    torch_folder,
    triton_version,
)
from cachesvc.local.gpu import Gpu
from cachesvc.local.libstdcxx import libstdcxx_versions
from cachesvc.local.machine import Machine

COMPONENTS = (
    *("torch", "torch_git", "triton", "runtime"),
    *("device", "capability", "python", "platform"),
)
"""The names of an environment fingerprint, all of which must be equal for reuse."""

KINDS = frozenset({"isa"}) | Requirement.VERSIONED
"""The kinds of requirement that this host can be asked about."""


def read_environment(machine: Machine | None = None) -> Components:
    """The environment fingerprint of this machine, for the torch of this interpreter.

    Imports neither torch nor Triton and makes no CUDA context. Depends on no path, user or host
    name. Raises TorchNotFound.
    """
    machine = machine or Machine()
    build = read_torch(machine.torch or torch_folder())
    device, capability = _device(build, machine)
    return Components.of(
        {
            "torch": build.version,
            "torch_git": build.git,
            "triton": triton_version(package_folder("triton")),
            "runtime": build.runtime,
            "device": device,
            "capability": capability,
            "python": python_abi(),
            "platform": platform_name(machine.arch, glibc_version(machine.confstr)),
        }
    )


def environment_from(recorded: Mapping[str, object]) -> Components:
    """The fingerprint that another machine recorded, to inspect or move its bundles.

    MUST hold the eight names of COMPONENTS, each with a text, and no other name. Raises UsageError
    that lists what is wrong, the first twenty things of it.
    """
    issues = list(_issues(recorded))
    if issues:
        raise UsageError(f"not an environment fingerprint: {'; '.join(issues[:MAX_ISSUES])}")
    return Components.of({name: str(recorded[name]) for name in COMPONENTS})


def _issues(recorded: Mapping[str, object]) -> Iterator[str]:
    for name in COMPONENTS:
        value = recorded.get(name)
        if name not in recorded:
            yield f"{name} is missing"
        elif not isinstance(value, str) or not value:
            yield f"{name} is {shown(value)}, not a text"
    for name in sorted(set(recorded) - set(COMPONENTS)):
        yield f"{named(name)} is unknown"


def _device(build: TorchBuild, machine: Machine) -> tuple[str, str]:
    """Name and capability of what torch would compile for."""
    gpu = _gpu(build, machine)
    return ("cpu", "none") if gpu is None else (gpu.name, gpu.capability)


def _gpu(build: TorchBuild, machine: Machine) -> Gpu | None:
    # Imported here: ctypes and subprocess are of no use to a CPU build.
    if build.hip:
        from cachesvc.local.rocm import rocm_gpu

        return rocm_gpu(machine)
    if build.cuda:
        from cachesvc.local.nvidia import nvidia_gpu

        return nvidia_gpu(machine)
    return Gpu("xpu", "none") if build.xpu else None


def read_capabilities(
    kinds: Collection[str] = KINDS, machine: Machine | None = None
) -> Capabilities:
    """What this host offers, of the `kinds` of requirement asked for and no others.

    A kind that was not asked for is as one that this host does not have. Unknown kinds are left
    out: nothing here could meet them.
    """
    machine = machine or Machine()
    isa = read_isa(machine) if "isa" in kinds else frozenset()
    versions = {kind: value for kind, value in _versions(kinds, machine) if kind in kinds}
    return Capabilities(isa, versions)


def _versions(kinds: Collection[str], machine: Machine) -> Iterator[tuple[str, str]]:
    if "glibc" in kinds and (glibc := glibc_version(machine.confstr)):
        yield "glibc", glibc
    if "glibcxx" in kinds or "cxxabi" in kinds:
        yield from libstdcxx_versions(machine).items()
    if "driver" in kinds:
        from cachesvc.local.nvidia import cuda_of_driver

        if cuda := cuda_of_driver(machine):
            yield "driver", cuda
