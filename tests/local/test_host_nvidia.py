"""NVIDIA machines, by recorded properties and by libraries that answer as the driver does."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.local.gpu import Gpu, own_gpu, select
from cachesvc.local.host import read_capabilities, read_environment
from cachesvc.local.machine import Machine
from cachesvc.local.nvidia import nvidia_gpu, read_nvidia

Compile = Callable[..., Path]

H200 = Gpu("NVIDIA H200", "9.0", "GPU-1f6bd4a0-6c4e-9a3d-0d2b-6f6b2c1a9e10", "00000000:04:00")
A100 = Gpu(
    "NVIDIA A100-SXM4-80GB", "8.0", "GPU-aa54d2f3-3a5e-4f0a-8a51-0f2b5c1d7e01", "00000000:07:00"
)
H100 = Gpu(
    "NVIDIA H100 80GB HBM3", "9.0", "GPU-bb91c7de-9b1c-41d2-b7a0-3c4d5e6f7a02", "00000000:0a:00"
)
SLICES = tuple(
    Gpu("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "9.0", f"MIG-{uuid}-5be5-5d3c-b2b6-2c1f4a1d9b10")
    for uuid in ("4f0b31aa", "90cc2b4e")
)
SLICED = Gpu(H100.name, "9.0", H100.uuid, H100.pci, SLICES)
MIXED = (A100, H100)

NVML = """
#include <string.h>
typedef struct gpu {
    const char *name, *uuid; int major, minor, bus, mig; struct gpu *parts; unsigned count;
} gpu;
typedef struct {
    char legacy[16]; unsigned domain, bus, device, id, subsystem; char id_text[32];
} pci;
%(tables)s
int opened = 0;
int nvmlInit_v2(void) { if (%(init)d == 0) opened++; return %(init)d; }
int nvmlShutdown(void) { opened--; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = %(cuda)d; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = sizeof gpus / sizeof *gpus; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **device) {
    if (gpus[index].name == 0) return 4;
    *device = gpus + index;
    return 0;
}
int nvmlDeviceGetName(gpu *device, char *text, unsigned size) {
    if (strlen(device->name) >= size) return 7;
    strcpy(text, device->name);
    return 0;
}
int nvmlDeviceGetUUID(gpu *device, char *text, unsigned size) {
    if (strlen(device->uuid) >= size) return 7;
    strcpy(text, device->uuid);
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(gpu *device, int *major, int *minor) {
    if (device->major < 0) return 3;
    *major = device->major;
    *minor = device->minor;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(gpu *device, pci *where) {
    memset(where, 0, sizeof *where);
    where->bus = device->bus;
    return 0;
}
int nvmlDeviceGetMigMode(gpu *device, unsigned *current, unsigned *pending) {
    if (device->mig < 0) return 3;
    *current = *pending = device->mig;
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(gpu *device, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(gpu *device, unsigned index, gpu **part) {
    if (index >= device->count) return 6;
    *part = device->parts + index;
    return 0;
}
"""

CUDA = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const char *names[] = {%(names)s};
static const int capabilities[] = {%(capabilities)s};
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuInit(unsigned flags) {
    const char *log = getenv("CUDA_INIT_LOG");
    if (log) { FILE *file = fopen(log, "a"); fprintf(file, "%%d\\n", getpid()); fclose(file); }
    return 0;
}
int cuDeviceGetCount(int *count) { *count = sizeof names / sizeof *names; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *text, int size, int device) { strcpy(text, names[device]); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? capabilities[device] / 10 : capabilities[device] %% 10;
    return 0;
}
"""


def _row(gpu: Gpu, parts: str, mig: int) -> str:
    major, minor = gpu.capability.split(".")
    bus = int(gpu.pci.split(":")[1], 16) if gpu.pci else 0
    count = f"sizeof {parts} / sizeof *{parts}" if gpu.slices else "0"
    return f'{{"{gpu.name}", "{gpu.uuid}", {major}, {minor}, {bus}, {mig}, {parts}, {count}}}'


def nvml_source(gpus: Sequence[Gpu | None], *, cuda: int = 13000, init: int = 0) -> str:
    """A driver library that knows these GPUs; None is one that this process may not open."""
    parts = [part for gpu in gpus if gpu for part in gpu.slices]
    # As the driver does, it gives no capability for a slice.
    rows = [_row(part, "0", -1).replace(", 9, 0,", ", -1, -1,") for part in parts]
    slices = f"static gpu slices[] = {{{','.join(rows)}}};" if rows else "static gpu *slices = 0;"
    whole = [
        _row(gpu, "slices" if gpu.slices else "0", int(bool(gpu.slices))) if gpu else "{0}"
        for gpu in gpus
    ]
    tables = f"{slices}\nstatic gpu gpus[] = {{{','.join(whole)}}};"
    return NVML % {"tables": tables, "cuda": cuda, "init": init}


def cuda_source(gpus: Sequence[Gpu]) -> str:
    """A CUDA library that lists these GPUs in this order."""
    names = ",".join(f'"{gpu.name}"' for gpu in gpus)
    return CUDA % {
        "names": names,
        "capabilities": ",".join(gpu.capability.replace(".", "") for gpu in gpus),
    }


def machine_of(
    nvml: Path | None,
    libcuda: Path | None = None,
    environ: Mapping[str, str] | None = None,
    torch: Path | None = None,
) -> Machine:
    """A machine whose driver libraries are these files; None for one that is not there."""
    return Machine(
        environ=environ or {},
        torch=torch,
        nvml=str(nvml or "libabsent.so"),
        libcuda=str(libcuda or "libabsent.so"),
    )


@pytest.fixture(scope="module")
def mixed_nvml(compile_library: Compile) -> Path:
    return compile_library(nvml_source(MIXED))


@pytest.fixture(scope="module")
def h100_first(compile_library: Compile) -> Path:
    return compile_library(cuda_source((H100, A100)))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (None, MIXED),
        ("", ()),
        ("1", (H100,)),
        ("1,0", (H100, A100)),
        (" 1 , 0 ", (H100, A100)),
        ("1gpu", (H100,)),
        ("0,-1,1", (A100,)),
        ("-1", ()),
        ("0,5,1", (A100,)),
        ("0,0", ()),
        ("none", ()),
        (H100.uuid, (H100,)),
        ("GPU-bb91", (H100,)),
        ("GPU-bb91,GPU-aa54", (H100, A100)),
        ("GPU-", ()),
        ("GPU-ffff,GPU-aa54", ()),
    ],
)
def test_a_device_list_is_read_as_cuda_reads_it(
    selection: str | None, expected: tuple[Gpu, ...]
) -> None:
    """Ordinals, UUID prefixes, order, the end of the list and repeats mean what they do in CUDA."""
    assert select(MIXED, selection) == expected


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (None, (A100, SLICES[0])),
        ("1", (SLICES[0],)),
        (SLICED.uuid, (SLICES[0],)),
        (SLICES[1].uuid, (SLICES[1],)),
        ("MIG-90cc", (SLICES[1],)),
        (f"MIG-90cc,{SLICES[0].uuid}", (SLICES[1], SLICES[0])),
        ("MIG-", ()),
    ],
)
def test_a_divided_gpu_is_used_by_its_slices(
    selection: str | None, expected: tuple[Gpu, ...]
) -> None:
    """A GPU in MIG mode cannot be used whole; a slice is named by its own UUID."""
    assert select((A100, SLICED), selection) == expected


@given(st.text() | st.lists(st.sampled_from(["0", "1", "-1", "GPU-a", "MIG-", ""])).map(",".join))
def test_no_device_list_is_an_error(selection: str) -> None:
    """Whatever CUDA_VISIBLE_DEVICES holds, the answer is some of the GPUs, each at most once."""
    chosen = select(MIXED, selection)
    assert set(chosen) <= set(MIXED)
    assert len(set(chosen)) == len(chosen)


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        ({}, A100),
        ({"LOCAL_RANK": "1"}, H100),
        ({"LOCAL_RANK": "7"}, A100),
        ({"LOCAL_RANK": "x"}, A100),
    ],
)
def test_a_rank_works_on_its_own_gpu(rank: Mapping[str, str], expected: Gpu) -> None:
    """LOCAL_RANK picks among the visible GPUs; with fewer than that, each rank sees its one."""
    assert own_gpu(MIXED, rank) == expected


def test_the_driver_is_read_through_nvml(compile_library: Compile) -> None:
    """Name, capability, UUID, place and CUDA version come from a library that is closed again."""
    path = compile_library(nvml_source((H100, None, H200)))
    nvidia = read_nvidia(machine_of(path))
    assert nvidia is not None
    assert (nvidia.cuda, nvidia.gpus) == ("13.0", (H200, H100))
    assert ctypes.c_int.in_dll(ctypes.CDLL(str(path)), "opened").value == 0


def test_slices_are_read_through_nvml(compile_library: Compile) -> None:
    """MIG instances are listed under their GPU and take its capability."""
    nvidia = read_nvidia(machine_of(compile_library(nvml_source((A100, SLICED)))))
    assert nvidia is not None
    assert nvidia.gpus == (A100, SLICED)


def test_an_h200_gives_the_fingerprint_its_bundles_recorded(
    compile_library: Compile, torch_text: Callable[..., Path]
) -> None:
    """Read here through the driver's library, an H200 is what one recorded of itself."""
    torch = torch_text(__version__="2.11.0+cu130", cuda="13.0")
    machine = machine_of(compile_library(nvml_source((H200, H200, H200))), torch=torch)
    environment = read_environment(machine)
    assert environment["torch"] == "2.11.0+cu130"
    assert environment["runtime"] == "cuda 13.0"
    assert (environment["device"], environment["capability"]) == ("NVIDIA H200", "9.0")
    assert read_capabilities({"driver"}, machine).versions == {"driver": "13.0"}


def test_equal_gpus_need_no_child_process(compile_library: Compile, tmp_path: Path) -> None:
    """Where all GPUs are alike their order says nothing, so CUDA is not asked."""
    log = tmp_path / "log"
    libraries = compile_library(nvml_source((H200, H200))), compile_library(cuda_source((H100,)))
    assert nvidia_gpu(machine_of(*libraries, {"CUDA_INIT_LOG": str(log)})) == H200
    assert not log.exists()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "H100"),
        ({"LOCAL_RANK": "1"}, "A100"),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "A100"),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}, "H100"),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "H100"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa54"}, "A100"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa54,GPU-bb91", "LOCAL_RANK": "1"}, "H100"),
    ],
)
def test_cuda_is_asked_where_only_it_knows_the_order(
    environ: Mapping[str, str], expected: str, mixed_nvml: Path, h100_first: Path
) -> None:
    """In a mixed machine CUDA sorts by speed, unless told to use PCI order or UUIDs."""
    gpu = nvidia_gpu(machine_of(mixed_nvml, h100_first, environ))
    assert gpu is not None
    assert expected in gpu.name


def test_without_cuda_a_mixed_machine_is_taken_in_pci_order(mixed_nvml: Path) -> None:
    """Where CUDA cannot be asked, there is still one answer, and always the same."""
    assert nvidia_gpu(machine_of(mixed_nvml)) == A100


def test_without_nvml_cuda_is_asked(h100_first: Path) -> None:
    """A system that has libcuda alone (Jetson) is read through it, driver version too."""
    machine = machine_of(None, h100_first)
    gpu = nvidia_gpu(machine)
    assert gpu is not None
    assert (gpu.name, gpu.capability) == (H100.name, "9.0")
    assert read_capabilities({"driver"}, machine).versions == {"driver": "12.8"}


def test_cuda_is_never_initialised_in_this_process(h100_first: Path, tmp_path: Path) -> None:
    """cuInit here would break every process forked later; it runs in a child that ends."""
    log = tmp_path / "log"
    nvidia_gpu(machine_of(None, h100_first, {"CUDA_INIT_LOG": str(log)}))
    (pid,) = log.read_text().split()
    assert int(pid) != os.getpid()


@pytest.mark.parametrize("status", [9, 18], ids=["no driver", "driver of another version"])
def test_a_library_without_its_driver_is_no_gpu(status: int, compile_library: Compile) -> None:
    """libnvidia-ml in an image on a host without the driver means a CPU, not an error."""
    path = compile_library(nvml_source((H200,), init=status))
    assert read_nvidia(machine_of(path)) is None
    assert nvidia_gpu(machine_of(path)) is None
    assert read_capabilities({"driver"}, machine_of(path)).versions == {}


def test_a_cuda_library_that_crashes_is_no_gpu(compile_library: Compile) -> None:
    """A child that dies while it asks takes nothing with it."""
    source = "#include <stdlib.h>\nint cuDriverGetVersion(int *version) { abort(); }\n"
    assert nvidia_gpu(machine_of(None, compile_library(source))) is None


def test_an_old_library_that_lacks_functions_is_read_as_far_as_it_goes(
    compile_library: Compile,
) -> None:
    """A missing function is an unanswered question, not a crash."""
    nvidia = read_nvidia(machine_of(compile_library("int nvmlInit_v2(void) { return 0; }\n")))
    assert nvidia is not None
    assert (nvidia.cuda, nvidia.gpus) == (None, ())


def test_hidden_gpus_mean_the_cpu(compile_library: Compile) -> None:
    """CUDA_VISIBLE_DEVICES="" is how people ask for the CPU on a GPU machine."""
    path = compile_library(nvml_source((H200,)))
    assert nvidia_gpu(machine_of(path, environ={"CUDA_VISIBLE_DEVICES": ""})) is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, SLICES[0]), ({"CUDA_VISIBLE_DEVICES": SLICES[1].uuid}, SLICES[1])],
)
def test_a_slice_is_the_device(
    environ: Mapping[str, str], expected: Gpu, compile_library: Compile
) -> None:
    """In MIG mode the device that Inductor keys on is the slice, by its own name."""
    assert (
        nvidia_gpu(machine_of(compile_library(nvml_source((SLICED,))), environ=environ)) == expected
    )
