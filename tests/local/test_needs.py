"""What the units of a tree need of a host, read off real libraries and kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cachesvc.core.errors import IntegrityError
from cachesvc.core.requirement import Requirement
from cachesvc.local.needs import unit_needs
from cachesvc.local.tree import FoundFile, FoundUnit, scan

Compile = Callable[..., Path]


def unit_of(*paths: Path, content: bytes | None = None) -> FoundUnit:
    files = (FoundFile(f"inductor/ab/{path.name}", path, 1, content=content) for path in paths)
    return FoundUnit("inductor/ab/c", tuple(files))


def test_the_kernels_of_an_h200_need_its_driver(h200_tree: Path) -> None:
    """PTX 9.0 came with CUDA 13; nothing of a kernel runs on the CPU."""
    units = scan([("triton", h200_tree / "triton")]).units
    kernels = [unit for unit in units if any(f.path.endswith(".ptx") for f in unit.files)]
    assert len(kernels) == 90
    assert {unit_needs(unit) for unit in kernels} == {(Requirement("driver", "13.0"),)}


def test_the_launchers_of_an_h200_need_its_c_library(h200_tree: Path) -> None:
    """They are native libraries for the CPU, so they need no driver but a glibc."""
    units = scan([("triton", h200_tree / "triton")]).units
    launchers = [unit for unit in units if any(f.path.endswith(".so") for f in unit.files)]
    assert len(launchers) == 2
    for unit in launchers:
        kinds = {need.kind for need in unit_needs(unit)}
        assert "glibc" in kinds
        assert "driver" not in kinds


def test_a_unit_needs_what_each_of_its_files_needs(
    compile_library: Compile, tmp_path: Path
) -> None:
    """In order and without repeats; text files need nothing."""
    source = "int f(void) { return 0; }"
    wide = "#include <immintrin.h>\nvoid g(float *p)"
    wide += "{ _mm256_storeu_ps(p, _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p))); }"
    plain, vector = compile_library(source), compile_library(wide, "-mavx", "-O1")
    ptx = tmp_path / "k.ptx"
    ptx.write_text("//\n.version 8.7\n.target sm_90a\n")
    text = tmp_path / "c.cpp"
    text.write_text("not read")
    needs = unit_needs(unit_of(plain, vector, vector, ptx, text))
    assert list(needs) == sorted(set(needs))
    assert {Requirement("isa", "avx"), Requirement("driver", "12.0")} <= set(needs)


def test_a_tree_without_native_code_needs_nothing(h200_tree: Path) -> None:
    """Inductor's part of a GPU's cache is text and pickles."""
    assert {unit_needs(unit) for unit in scan([("inductor", h200_tree / "inductor")]).units} == {()}


@pytest.mark.parametrize("left", [0, 3, 64, 500, -1])
def test_a_truncated_library_is_not_published(
    compile_library: Compile, tmp_path: Path, left: int
) -> None:
    """ "file too short" in every process that loads it: stopped here, by name."""
    cut = tmp_path / "cut.so"
    cut.write_bytes(compile_library("int f(void) { return 0; }").read_bytes()[:left])
    with pytest.raises(IntegrityError, match=r"inductor/ab/cut\.so"):
        unit_needs(unit_of(cut))


def test_a_real_library_cut_by_half_is_not_published(h200_tree: Path, tmp_path: Path) -> None:
    """A launcher of Triton, as a full disk leaves it."""
    (launcher,) = (h200_tree / "triton").glob("*/__triton_launcher*.so")
    cut = tmp_path / launcher.name
    cut.write_bytes(launcher.read_bytes()[: launcher.stat().st_size // 2])
    with pytest.raises(IntegrityError, match="damaged"):
        unit_needs(unit_of(cut))


def test_ptx_without_a_version_is_not_published(tmp_path: Path) -> None:
    """Empty or overwritten: the driver that it needs cannot be told."""
    ptx = tmp_path / "k.ptx"
    ptx.write_bytes(b"\xff\0garbage")
    with pytest.raises(IntegrityError):
        unit_needs(unit_of(ptx))


@pytest.mark.parametrize("name", ["gone.so", "gone.ptx"])
def test_a_file_that_is_gone_is_said(tmp_path: Path, name: str) -> None:
    """A compiler replaced it between the reading of the tree and of the file."""
    with pytest.raises(IntegrityError, match=f"inductor/ab/{name} cannot be read: No such file"):
        unit_needs(unit_of(tmp_path / name))


def test_content_that_is_no_file_needs_nothing(tmp_path: Path) -> None:
    """A relocated group, an artifact of a mega-cache: what they hold is not loaded as code here."""
    assert unit_needs(unit_of(tmp_path / "gone.so", content=b"{}")) == ()
