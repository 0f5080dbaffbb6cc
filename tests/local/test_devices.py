"""Which devices a tree's kernels were compiled for, and whether this one is among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.components import Components
from cachesvc.local.devices import foreign_devices
from cachesvc.local.tree import FoundFile, FoundUnit, scan

H200 = Components.of({"device": "NVIDIA H200", "capability": "9.0"})
CPU = Components.of({"device": "cpu", "capability": "none"})


def kernel(folder: Path, metadata: object) -> FoundUnit:
    """One kernel whose metadata file holds this value, or these bytes."""
    file = folder / "k.json"
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    file.write_bytes(text)
    return FoundUnit("triton/KEY", (FoundFile("triton/KEY/k.json", file, len(text)),))


def target(backend: str, arch: Any) -> dict[str, Any]:
    return {"target": {"backend": backend, "arch": arch, "warp_size": 32}, "name": "k"}


def test_an_h200_runs_its_own_kernels(h200_tree: Path) -> None:
    """Triton's architecture 90 is the capability 9.0."""
    assert foreign_devices(scan([("triton", h200_tree / "triton")]).units, H200) == ()


@pytest.mark.parametrize(
    "environment",
    [CPU, Components.of({"device": "NVIDIA A100", "capability": "8.0"}), Components()],
)
def test_other_devices_do_not_run_the_kernels_of_an_h200(
    h200_tree: Path, environment: Components
) -> None:
    """90 kernels, one target, said once."""
    units = scan([("triton", h200_tree / "triton")]).units
    assert foreign_devices(units, environment) == ("cuda 90",)


@pytest.mark.parametrize(
    ("backend", "arch", "capability", "foreign"),
    [
        ("cuda", 90, "9.0", ()),
        ("cuda", 103, "10.3", ()),
        ("cuda", 100, "10.3", ("cuda 100",)),
        ("cuda", 121, "12.0", ("cuda 121",)),
        ("hip", "gfx942", "gfx942", ()),
        ("hip", "gfx942", "gfx942:sramecc+:xnack-", ()),
        ("hip", "gfx942:sramecc+:xnack-", "gfx942", ()),
        ("hip", "gfx1030", "gfx1032", ("hip gfx1030",)),
        ("xpu", {"max_work_group_size": 1024}, "none", ()),
        ("cpu", "x86_64", "none", ()),
    ],
)
def test_architecture_and_capability(
    tmp_path: Path, backend: str, arch: Any, capability: str, foreign: tuple[str, ...]
) -> None:
    """Each vendor has its own spelling; a kind without an architecture of its own says nothing."""
    environment = Components.of({"device": "a device", "capability": capability})
    assert foreign_devices([kernel(tmp_path, target(backend, arch))], environment) == foreign


@pytest.mark.parametrize(
    "metadata",
    [b"", b"{", b"\xff", b"[" * 100_000, [], None, {}, {"target": None}, {"target": "cuda"}],
)
def test_metadata_that_cannot_be_read_says_nothing(tmp_path: Path, metadata: object) -> None:
    """A warning is all that depends on it, so nothing stops here."""
    assert foreign_devices([kernel(tmp_path, metadata)], CPU) == ()


def test_only_triton_metadata_counts(tmp_path: Path) -> None:
    """A group is no metadata, nor is a JSON file of somebody else."""
    file = tmp_path / "k.json"
    file.write_text(json.dumps(target("cuda", 90)))
    paths = ("triton/KEY/__grp__k.json", "inductor/ab/k.json", "extra/vllm/k.json")
    units = [FoundUnit(path, (FoundFile(path, file, 1),)) for path in paths]
    gone = FoundUnit("triton/K", (FoundFile("triton/K/k.json", tmp_path / "gone", 1),))
    assert foreign_devices([*units, gone], CPU) == ()
