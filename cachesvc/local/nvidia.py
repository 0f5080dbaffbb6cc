"""NVIDIA GPUs and driver, read through NVML: no CUDA context, so a later fork stays safe."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cachesvc.local.gpu import Gpu, alike, by_uuid, own_gpu, select
from cachesvc.local.libcuda import ask_libcuda
from cachesvc.local.machine import Machine

# Sizes and names below are those of nvml.h; they have been stable since CUDA 11.
_TEXT_BYTES = 96


@dataclass(frozen=True, slots=True)
class Nvidia:
    """What the driver says: the CUDA version it supports ("13.0") and its GPUs in PCI order."""

    cuda: str | None
    gpus: tuple[Gpu, ...]


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    )


@dataclass(frozen=True, slots=True)
class _Session:
    """Questions to an NVML that has been initialised; a question it cannot answer gives None."""

    library: ctypes.CDLL

    def answers(self, function: str, *arguments: object) -> bool:
        """Whether the library has the function and it succeeds."""
        call = getattr(self.library, function, None)
        return call is not None and call(*arguments) == 0

    def _number(self, function: str, *arguments: object) -> int | None:
        answer = ctypes.c_int()
        return answer.value if self.answers(function, *arguments, ctypes.byref(answer)) else None

    def _text(self, function: str, device: ctypes.c_void_p) -> str:
        answer = ctypes.create_string_buffer(_TEXT_BYTES)
        known = self.answers(function, device, answer, ctypes.c_uint(_TEXT_BYTES))
        return answer.value.decode(errors="replace") if known else ""

    def _device(self, function: str, *arguments: object) -> ctypes.c_void_p | None:
        answer = ctypes.c_void_p()
        return answer if self.answers(function, *arguments, ctypes.byref(answer)) else None

    def cuda(self) -> str | None:
        """The CUDA version of the driver, which NVML writes as 13000 for 13.0."""
        version = self._number("nvmlSystemGetCudaDriverVersion_v2")
        return None if version is None else f"{version // 1000}.{version % 1000 // 10}"

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that this process may open, in PCI order."""
        found = (self._gpu(index) for index in range(self._number("nvmlDeviceGetCount_v2") or 0))
        return tuple(sorted((gpu for gpu in found if gpu), key=lambda gpu: gpu.pci))

    def _gpu(self, index: int) -> Gpu | None:
        device = self._device("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))
        if device is None:
            return None
        capability = self._capability(device)
        slices = tuple(self._slices(device, capability))
        if self._divided(device) and not slices:
            return None
        name, uuid = self._identity(device)
        return Gpu(name, capability, uuid, self._pci(device), slices)

    def _identity(self, device: ctypes.c_void_p) -> tuple[str, str]:
        return self._text("nvmlDeviceGetName", device), self._text("nvmlDeviceGetUUID", device)

    def _capability(self, device: ctypes.c_void_p) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        where = ctypes.byref(major), ctypes.byref(minor)
        self.answers("nvmlDeviceGetCudaComputeCapability", device, *where)
        return f"{major.value}.{minor.value}"

    def _pci(self, device: ctypes.c_void_p) -> str:
        answer = _PciInfo()
        self.answers("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(answer))
        return f"{answer.domain:08x}:{answer.bus:02x}:{answer.device:02x}"

    def _divided(self, device: ctypes.c_void_p) -> bool:
        """Whether the GPU is in MIG mode now."""
        pending = ctypes.c_uint()
        mode = ctypes.c_uint()
        known = self.answers(
            "nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending)
        )
        return known and mode.value == 1

    def _slices(self, device: ctypes.c_void_p, capability: str) -> Iterator[Gpu]:
        if not self._divided(device):
            return
        for index in range(self._number("nvmlDeviceGetMaxMigDeviceCount", device) or 0):
            place = device, ctypes.c_uint(index)
            part = self._device("nvmlDeviceGetMigDeviceHandleByIndex", *place)
            if part is not None:
                name, uuid = self._identity(part)
                yield Gpu(name, capability, uuid)


@contextmanager
def _session(library: str) -> Iterator[_Session | None]:
    """NVML, initialised and shut down again; None without the library, driver or a GPU."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        yield None
        return
    session = _Session(nvml)
    if not session.answers("nvmlInit_v2"):
        yield None
        return
    try:
        yield session
    finally:
        session.answers("nvmlShutdown")


def read_nvidia(machine: Machine) -> Nvidia | None:
    """What NVML says of this machine; None where NVML is missing or finds no driver."""
    with _session(machine.nvml) as session:
        return None if session is None else Nvidia(session.cuda(), session.gpus())


def cuda_of_driver(machine: Machine) -> str | None:
    """The CUDA version that the driver supports, as "13.0"; None without a driver."""
    with _session(machine.nvml) as session:
        if session is not None:
            return session.cuda()
    answer = ask_libcuda(machine)
    return None if answer is None else answer.cuda


def nvidia_gpu(machine: Machine) -> Gpu | None:
    """The GPU a CUDA build of torch would work on in this process; None without one."""
    nvidia = read_nvidia(machine)
    if nvidia is None or _order_unknown(nvidia.gpus, machine):
        answer = ask_libcuda(machine)
        if answer is not None:
            return own_gpu(answer.gpus, machine.environ)
    selection = machine.environ.get("CUDA_VISIBLE_DEVICES")
    return own_gpu(select(nvidia.gpus if nvidia else (), selection), machine.environ)


def _order_unknown(gpus: tuple[Gpu, ...], machine: Machine) -> bool:
    """Whether only CUDA can say which GPU comes first: it sorts by speed unless told otherwise."""
    selection = machine.environ.get("CUDA_VISIBLE_DEVICES")
    if alike(gpus) or (selection is not None and by_uuid(selection)):
        return False
    divided = any(gpu.slices for gpu in gpus)
    return divided or machine.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
