"""AMD machines, by the topology files that the kernel driver writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cachesvc.local.host import read_environment
from cachesvc.local.machine import Machine
from cachesvc.local.rocm import gpu_of, read_rocm, rocm_gpu

CPU = "cpu_cores_count 96\nsimd_count 0\nmem_banks_count 1\ngfx_target_version 0\nvendor_id 0\n"
MI300X = """\
cpu_cores_count 0
simd_count 1216
mem_banks_count 1
caches_count 626
io_links_count 8
p2p_links_count 7
cpu_core_id_base 0
simd_id_base 2147487744
max_waves_per_simd 8
lds_size_in_kb 64
gds_size_in_kb 0
num_gws 64
wave_front_size 64
array_count 32
simd_arrays_per_engine 1
cu_per_simd_array 10
simd_per_cu 4
max_slots_scratch_cu 32
gfx_target_version 90402
vendor_id 4098
device_id 29857
location_id 1280
domain 0
drm_render_minor 128
hive_id 17282086893215427587
num_sdma_engines 2
num_sdma_xgmi_engines 14
num_sdma_queues_per_engine 8
num_cp_queues 24
max_engine_clk_fcompute 2100
local_mem_size 0
fw_version 177
capability 746025600
debug_prop 1495
sdma_fw_version 19
unique_id 12091141412936873321
num_xcc 8
max_engine_clk_ccompute 3700
"""
RX6900 = """\
cpu_cores_count 0
simd_count 160
wave_front_size 32
gfx_target_version 100300
vendor_id 4098
device_id 29631
location_id 2816
domain 0
drm_render_minor 129
hive_id 0
capability 178938496
unique_id 15417138230410893714
num_xcc 1
"""
MI210 = "simd_count 416\ngfx_target_version 90010\ncapability 111829632\nunique_id 7\n"

MI300X_NAME = "gfx942:sramecc+:xnack-"
MI300X_UUID = "GPU-a7cc5d0daf1df569"


@pytest.fixture
def kfd(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes the topology of these nodes and gives its folder."""

    def write(*nodes: str) -> Path:
        for number, properties in enumerate(nodes):
            folder = tmp_path / "nodes" / str(number)
            folder.mkdir(parents=True)
            (folder / "properties").write_text(properties)
        return tmp_path / "nodes"

    return write


@pytest.mark.parametrize(
    ("properties", "gfx", "name"),
    [
        (MI300X, "gfx942", MI300X_NAME),
        (RX6900, "gfx1030", "gfx1030"),
        (MI210, "gfx90a", "gfx90a:sramecc+:xnack-"),
        ("gfx_target_version 110501\n", "gfx1151", "gfx1151"),
        ("gfx_target_version 90008\ncapability 0\n", "gfx908", "gfx908:sramecc-:xnack-"),
        ("gfx_target_version 100100\n", "gfx1010", "gfx1010:xnack-"),
    ],
)
def test_a_node_is_named_as_rocm_names_it(properties: str, gfx: str, name: str) -> None:
    """The version number gives the gfx name; the features that its code depends on follow."""
    gpu = gpu_of(properties, None, {})
    assert gpu is not None
    assert (gpu.capability, gpu.name) == (gfx, name)


def test_a_cpu_node_is_no_gpu() -> None:
    """The topology lists processors too."""
    assert gpu_of(CPU, None, {}) is None
    assert gpu_of("", None, {}) is None


def test_page_migration_is_part_of_the_name() -> None:
    """Code built with HSA_XNACK=1 is not code built without."""
    gpu = gpu_of(MI300X, None, {"HSA_XNACK": "1"})
    assert gpu is not None
    assert gpu.name == "gfx942:sramecc+:xnack+"


def test_nodes_are_taken_in_the_order_of_their_numbers(kfd: Callable[..., Path]) -> None:
    """Node 10 comes after node 2, as the runtime counts."""
    folder = kfd(CPU, CPU, *[MI300X] * 8, RX6900)
    names = [gpu.name for gpu in read_rocm(Machine(environ={}, kfd=folder))]
    assert names == [MI300X_NAME] * 8 + ["gfx1030"]


def test_a_gpu_that_the_container_was_not_given_is_left_out(kfd: Callable[..., Path]) -> None:
    """The kernel refuses the properties of a closed node; a folder in its place does the same."""
    folder = kfd(CPU, MI300X, RX6900)
    (folder / "1" / "properties").unlink()
    (folder / "1" / "properties").mkdir()
    (gpu,) = read_rocm(Machine(environ={}, kfd=folder))
    assert gpu.name == "gfx1030"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, MI300X_NAME),
        ({"HIP_VISIBLE_DEVICES": "1"}, "gfx1030"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "gfx1030"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, MI300X_NAME),
        ({"ROCR_VISIBLE_DEVICES": "1"}, "gfx1030"),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, "gfx1030"),
        ({"ROCR_VISIBLE_DEVICES": f"1,{MI300X_UUID}", "LOCAL_RANK": "1"}, MI300X_NAME),
        ({"ROCR_VISIBLE_DEVICES": MI300X_UUID}, MI300X_NAME),
        ({"LOCAL_RANK": "1"}, "gfx1030"),
        ({"HIP_VISIBLE_DEVICES": ""}, None),
        ({"HIP_VISIBLE_DEVICES": "-1"}, None),
        ({"HIP_VISIBLE_DEVICES": "1", "HSA_OVERRIDE_GFX_VERSION": "11.0.0"}, "gfx1100"),
        ({"HIP_VISIBLE_DEVICES": "0", "HSA_OVERRIDE_GFX_VERSION_2": "11.0.0"}, MI300X_NAME),
        ({"HIP_VISIBLE_DEVICES": "1", "HSA_OVERRIDE_GFX_VERSION_2": "11.0.0"}, "gfx1100"),
        ({"HIP_VISIBLE_DEVICES": "1", "HSA_OVERRIDE_GFX_VERSION": "nonsense"}, "gfx1030"),
    ],
)
def test_the_visible_gpu_is_the_one_rocm_would_use(
    environ: Mapping[str, str], expected: str | None, kfd: Callable[..., Path]
) -> None:
    """The filters of the runtime, of HIP and the override of the chip apply in their order."""
    gpu = rocm_gpu(Machine(environ=environ, kfd=kfd(CPU, MI300X, RX6900)))
    assert (gpu and gpu.name) == expected


def test_a_rocm_build_gives_the_arch_as_device(
    kfd: Callable[..., Path], torch_text: Callable[..., Path]
) -> None:
    """Inductor keys on gcnArchName under ROCm, so the fingerprint does."""
    torch = torch_text(hip="6.4.43484-123eb5128")
    environment = read_environment(Machine(environ={}, torch=torch, kfd=kfd(CPU, MI300X)))
    assert environment["runtime"] == "rocm 6.4.43484-123eb5128"
    assert (environment["device"], environment["capability"]) == (MI300X_NAME, "gfx942")


def test_a_rocm_build_without_a_gpu_works_on_the_cpu(
    tmp_path: Path, torch_text: Callable[..., Path]
) -> None:
    """No kernel driver, no topology, no error."""
    machine = Machine(environ={}, torch=torch_text(hip="6.4"), kfd=tmp_path / "absent")
    environment = read_environment(machine)
    assert (environment["device"], environment["capability"]) == ("cpu", "none")
