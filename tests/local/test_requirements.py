"""What native libraries and kernels need of a host, read off real ones built here."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.errors import IntegrityError
from cachesvc.core.requirement import Requirement
from cachesvc.local.host import read_capabilities
from cachesvc.local.instructions import BASELINE, RENAMED, features_used, flag
from cachesvc.local.libraries import read_requirements
from cachesvc.local.machine import Machine
from cachesvc.local.ptx import driver_requirement

Compile = Callable[..., Path]

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the libraries built here are x86-64 code"
)

LOOP = """
void scale(float *restrict to, const float *restrict from, float by, int count) {
    for (int i = 0; i < count; i++) to[i] += by * from[i];
}
"""
BITS = "int bits(unsigned one) { return __builtin_popcount(one); }"
LEADING = "int zeros(unsigned one) { return one ? __builtin_clz(one) : 32; }"
CPP = "#include <string>\n#include <stdexcept>\n"
CPP += 'void fail(const char *why) { throw std::runtime_error(std::string(why) + "!"); }'

# Features that the kernel's /proc/cpuinfo prints under iced's name in lower case.
PRINTED = """
    ADX AES AMX_BF16 AMX_INT8 AMX_TILE AVX AVX2 AVX512BW AVX512CD AVX512DQ AVX512ER AVX512F AVX512PF
    AVX512VL AVX512_4FMAPS AVX512_4VNNIW AVX512_BF16 AVX512_BITALG AVX512_FP16 AVX512_VBMI2
    AVX512_VNNI AVX512_VP2INTERSECT AVX512_VPOPCNTDQ AVX_VNNI BMI1 BMI2 CLDEMOTE CLFLUSHOPT CLWB
    CLZERO ENQCMD F16C FMA FMA4 FRED FSGSBASE GFNI HLE IA64 INVPCID LKGS LWP MONITOR MOVBE
    MOVDIR64B MOVDIRI MPX PCLMULQDQ PCONFIG PKU POPCNT RDPID RDPRU RDRAND RDSEED RDTSCP RTM
    SERIALIZE SEV_ES SEV_SNP SKINIT SMAP SMX SSE4A SSE4_1 SSE4_2 SSSE3
    SVM TBM TSXLDTRK VAES VMX VPCLMULQDQ WAITPKG
    WBNOINVD XOP XSAVE XSAVEC XSAVEOPT XSAVES
"""

# Features that it does not print, or that no 64-bit CPU ever had: code with them fits nowhere.
NOT_PRINTED = """
    AESKLE AMX_COMPLEX AMX_FP16 AVX_IFMA AVX_NE_CONVERT AVX_VNNI_INT16 AVX_VNNI_INT8 CENTAUR_AIS
    CL1INVMB CMPCCXADD CYRIX_D3NOW CYRIX_DDI CYRIX_DMI CYRIX_EMMI CYRIX_FPU CYRIX_SHR CYRIX_SMINT
    CYRIX_SMINT_0F7E CYRIX_SMM HRESET INVLPGB KL KNC MCOMMIT MOV_TR MSRLIST OSS PADLOCK_GMI
    PADLOCK_UNDOC PCOMMIT PREFETCHITI PREFETCHWT1 PTWRITE RAO_INT RDPMC RMPQUERY SHA512 SM3 SM4 SMM
    TDX TSE UDBG UINTR UMOV WIDE_KL WRMSRNS
"""


def values(requirements: tuple[Requirement, ...], kind: str) -> set[str]:
    return {one.value for one in requirements if one.kind == kind}


@pytest.mark.parametrize(
    ("source", "flags", "isa"),
    [
        (LOOP, ["-march=x86-64"], set()),
        (LOOP, ["-march=x86-64", "-fcf-protection"], set()),
        (LOOP, ["-mavx", "-mno-avx2"], {"avx"}),
        (LOOP, ["-mavx2", "-mfma"], {"avx", "fma"}),
        (LOOP.replace("float", "int"), ["-mavx2"], {"avx", "avx2"}),
        (LOOP, ["-mavx512f", "-mprefer-vector-width=512"], {"avx512f"}),
        (BITS, ["-mpopcnt"], {"popcnt"}),
        (LEADING, ["-mlzcnt"], {"abm"}),
    ],
)
def test_the_instruction_set_is_read_off_the_code(
    source: str, flags: list[str], isa: set[str], compile_library: Compile
) -> None:
    """What the compiler was allowed to use, and did use, is what the CPU must have."""
    found = values(read_requirements(compile_library(source, "-O3", *flags)), "isa")
    assert isa <= found
    assert isa or not found
    assert ("avx512f" in found) == any("512" in flag for flag in flags)


def test_a_host_without_avx512_refuses_it_by_name(compile_library: Compile, tmp_path: Path) -> None:
    """A process never dies of an illegal instruction: the refusal names the feature."""
    (tmp_path / "cpuinfo").write_text("flags : sse2 avx avx2 fma\n")
    host = read_capabilities({"isa"}, Machine(cpuinfo=tmp_path / "cpuinfo"))
    library = compile_library(LOOP, "-O3", "-mavx512f", "-mprefer-vector-width=512")
    refusals = [str(unmet) for unmet in host.unmet(read_requirements(library))]
    assert "needs isa avx512f, this host has a CPU without it" in refusals


def test_what_is_built_here_fits_here(compile_library: Compile) -> None:
    """A library compiled for this very CPU, as Inductor does, is never refused on it."""
    library = compile_library(LOOP + BITS + LEADING, "-O3", "-march=native", "-ffast-math")
    needs = read_requirements(library) + read_requirements(
        compile_library(CPP, "-O3", "-march=native", compiler="g++")
    )
    assert needs
    assert read_capabilities().unmet(needs) == ()


def test_the_versions_of_the_runtime_libraries_are_read(compile_library: Compile) -> None:
    """A C++ library says which libstdc++ it needs; a C library needs none."""
    needs = read_requirements(compile_library(CPP, compiler="g++"))
    assert values(needs, "glibcxx") == {"3.4.21"}
    assert values(needs, "cxxabi") == {"1.3"} or values(needs, "cxxabi") == {"1.3.9"}
    assert values(needs, "glibc")
    plain = read_requirements(compile_library(LOOP))
    assert not values(plain, "glibcxx") | values(plain, "cxxabi")


def test_the_highest_version_is_by_number(compile_library: Compile) -> None:
    """GLIBC_2.14 is newer than GLIBC_2.2.5: text order would say otherwise."""
    source = "#include <string.h>\n#include <stdlib.h>\n"
    source += "char *copy(const char *from, size_t n) { return memcpy(malloc(n), from, n); }"
    (version,) = values(read_requirements(compile_library(source, "-O0")), "glibc")
    assert version == "2.14"


def test_a_packed_relocation_table_needs_the_glibc_that_reads_it(compile_library: Compile) -> None:
    """The linker asks for it under a name without a number; glibc 2.36 was the first to have it."""
    table = "#include <stdlib.h>\nstatic int one; int *table[] = {&one, &one};"
    table += "void *first(void) { return malloc(**table); }"
    library = compile_library(table, "-Wl,-z,pack-relative-relocs")
    assert values(read_requirements(library), "glibc") == {"2.36"}


def test_bytes_and_files_are_read_alike(compile_library: Compile) -> None:
    """A unit in memory needs what the same unit on disk needs, in the same order."""
    library = compile_library(CPP, "-O3", "-mavx2", compiler="g++")
    needs = read_requirements(library)
    assert read_requirements(library.read_bytes()) == needs
    assert list(needs) == sorted(set(needs))


@pytest.mark.parametrize("data", [b"", b"\x7fEL", b"#!/bin/sh\n", b"\0" * 4096])
def test_what_is_no_library_is_refused_by_name(data: bytes) -> None:
    """A text or an empty file where a library should be is wrong data, and is named."""
    with pytest.raises(IntegrityError, match=r"inductor/ab/cab\.so is not a native library"):
        read_requirements(data, name="inductor/ab/cab.so")


def test_a_cut_library_is_refused(compile_library: Compile) -> None:
    """Half a file is damage, wherever it is cut."""
    library = compile_library(LOOP)
    data = library.read_bytes()
    for size in (4, 16, 64, len(data) // 2, len(data) - 64, len(data) - 1):
        with pytest.raises(IntegrityError, match="damaged"):
            read_requirements(data[:size])


def test_damage_is_refused_or_tolerated_but_never_anything_else(compile_library: Compile) -> None:
    """Flipped bytes end in an answer or in IntegrityError, whichever structure they hit."""
    data = compile_library(CPP, compiler="g++").read_bytes()

    @given(st.lists(st.tuples(st.integers(4, len(data) - 1), st.integers(0, 255)), min_size=1))
    def damaged(flips: list[tuple[int, int]]) -> None:
        copy = bytearray(data)
        for place, value in flips:
            copy[place] = value
        with suppress(IntegrityError):
            read_requirements(bytes(copy))

    damaged()


def test_a_damaged_header_is_refused_quickly(compile_library: Compile) -> None:
    """A section table that claims to be endless is damage, not an endless loop."""
    data = bytearray(compile_library(LOOP).read_bytes())
    data[60:62] = b"\xff\xff"
    with pytest.raises(IntegrityError, match="sections"):
        read_requirements(bytes(data))


def test_bytes_that_are_no_instruction_are_stepped_over() -> None:
    """What follows bytes that cannot be decoded is still read."""
    vaddps = bytes.fromhex("c5fc58c1")
    assert features_used([(0, vaddps)]) == {"avx"}
    assert features_used([(0, b"\x06\x06" + vaddps + b"\xff\xff")]) >= {"avx"}
    assert features_used([]) == frozenset()


@pytest.mark.parametrize(
    ("instruction", "isa"),
    [
        ("rep ret", set()),
        ("endbr64", set()),
        ("cpuid", set()),
        ("pause", set()),
        ("nopw 0(%rax,%rax,1)", set()),
        ("cmovne %eax,%ebx", set()),
        ("addpd %xmm1,%xmm0", set()),
        ("lock cmpxchg16b (%rdi)", {"cx16"}),
        ("addsubps %xmm1,%xmm0", {"pni"}),
        ("pshufb %xmm1,%xmm0", {"ssse3"}),
        ("pblendw $1,%xmm1,%xmm0", {"sse4_1"}),
        ("pcmpgtq %xmm1,%xmm0", {"sse4_2"}),
        ("popcnt %eax,%ebx", {"popcnt"}),
        ("lzcnt %eax,%ebx", {"abm"}),
        ("movbe (%rdi),%eax", {"movbe"}),
        ("aesenc %xmm1,%xmm0", {"aes"}),
        ("sha1nexte %xmm1,%xmm0", {"sha_ni"}),
        ("pclmulqdq $0,%xmm1,%xmm0", {"pclmulqdq"}),
        ("adcx %eax,%ebx", {"adx"}),
        ("prefetchw (%rdi)", {"3dnowprefetch"}),
        ("vaddps %ymm1,%ymm0,%ymm2", {"avx"}),
        ("vpaddd %ymm1,%ymm0,%ymm2", {"avx2"}),
        ("vcvtph2ps %xmm1,%ymm0", {"f16c"}),
        ("vfmadd231ps %ymm1,%ymm0,%ymm2", {"fma"}),
        ("andn %eax,%ebx,%ecx", {"bmi1"}),
        ("shlx %eax,%ebx,%ecx", {"bmi2"}),
        ("vaesenc %ymm1,%ymm0,%ymm2", {"vaes"}),
        ("vpclmulqdq $0,%ymm1,%ymm0,%ymm2", {"vpclmulqdq"}),
        ("gf2p8mulb %xmm1,%xmm0", {"gfni"}),
        ("{vex} vpdpbusd %ymm1,%ymm0,%ymm2", {"avx_vnni"}),
        ("vaddps %zmm1,%zmm0,%zmm2", {"avx512f"}),
        ("vaddps %ymm16,%ymm0,%ymm2", {"avx512f", "avx512vl"}),
        ("vpaddb %zmm1,%zmm0,%zmm2", {"avx512bw"}),
        ("vpmullq %zmm1,%zmm0,%zmm2", {"avx512dq"}),
        ("vpconflictd %zmm1,%zmm0", {"avx512cd"}),
        ("vpmadd52luq %zmm1,%zmm0,%zmm2", {"avx512ifma"}),
        ("vpermb %zmm1,%zmm0,%zmm2", {"avx512vbmi"}),
        ("vpshldd $1,%zmm1,%zmm0,%zmm2", {"avx512_vbmi2"}),
        ("vpdpbusd %zmm1,%zmm0,%zmm2", {"avx512_vnni"}),
        ("vpopcntd %zmm1,%zmm0", {"avx512_vpopcntdq"}),
        ("vpopcntb %zmm1,%zmm0", {"avx512_bitalg"}),
        ("vdpbf16ps %zmm1,%zmm0,%zmm2", {"avx512f", "avx512_bf16"}),
        ("vaddph %zmm1,%zmm0,%zmm2", {"avx512_fp16"}),
        ("tdpbssd %tmm1,%tmm0,%tmm2", {"amx_int8"}),
        ("tdpbf16ps %tmm1,%tmm0,%tmm2", {"amx_bf16"}),
        ("tileloadd (%rdi,%rsi),%tmm0", {"amx_tile"}),
    ],
)
def test_single_instructions_need_what_the_kernel_calls_them(
    instruction: str, isa: set[str], compile_library: Compile
) -> None:
    """The names are those of /proc/cpuinfo, which differ from the CPU makers' in places."""
    library = compile_library(f'__asm__(".text\\n{instruction}\\n");', "-nostdlib")
    assert values(read_requirements(library), "isa") == isa


def test_every_feature_that_can_be_decoded_is_accounted_for() -> None:
    """Each is baseline, renamed, printed by the kernel as it is, or known to be printed nowhere."""
    from iced_x86 import CpuidFeature

    groups = [BASELINE, RENAMED.keys(), set(PRINTED.split()), set(NOT_PRINTED.split())]
    known = {name for name, value in vars(CpuidFeature).items() if isinstance(value, int)}
    assert known - set().union(*groups) == set()
    assert sum(map(len, groups)) == len(set().union(*groups))


def test_a_feature_without_an_entry_is_not_dropped() -> None:
    """What a newer decoder knows and this table does not still has to be there on the host."""
    assert flag("AVX99_FANCY") == "avx99_fancy"
    assert flag("SSE2") is None


def _for_arm(library: Path) -> bytes:
    data = bytearray(library.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    return bytes(data)


def test_arm_code_needs_all_that_its_builder_has(compile_library: Compile, tmp_path: Path) -> None:
    """Without a decoder the features of the CPU that built it stand for what it may use."""
    (tmp_path / "cpuinfo").write_text("Features : fp asimd evtstrm sve i8mm cpuid\n")
    (tmp_path / "length").write_text("32\n")
    builder = Machine(
        arch="aarch64", cpuinfo=tmp_path / "cpuinfo", vector_length=tmp_path / "length"
    )
    needs = read_requirements(_for_arm(compile_library(LOOP)), machine=builder)
    assert values(needs, "isa") == {"fp", "asimd", "sve", "i8mm", "sve_bits_256"}


def test_foreign_code_that_cannot_be_decoded_fits_nowhere(compile_library: Compile) -> None:
    """On another kind of CPU nothing is known of it, so nothing is promised."""
    needs = read_requirements(_for_arm(compile_library(LOOP)), machine=Machine(arch="x86_64"))
    assert values(needs, "isa") == {"undecoded-aarch64"}
    assert read_capabilities().unmet(needs)


def test_gpu_code_needs_nothing_of_the_cpu(compile_library: Compile) -> None:
    """A cubin is an ELF file too; what it needs is in the address."""
    data = bytearray(compile_library(LOOP).read_bytes())
    data[18:20] = (190).to_bytes(2, "little")
    assert read_requirements(bytes(data)) == ()


@pytest.mark.parametrize(
    ("version", "cuda"),
    [
        ("9.0", "13.0"),
        ("8.8", "12.0"),
        ("8.0", "12.0"),
        ("7.8", "11.0"),
        ("6.5", "11.0"),
        ("10.1", "14.0"),
    ],
)
def test_ptx_says_which_driver_it_needs(version: str, cuda: str) -> None:
    """The major of the PTX gives the major of CUDA; a driver of that major runs the kernel."""
    ptx = f"//\n// Generated by LLVM NVPTX Back-End\n//\n\n.version {version}\n.target sm_90a\n"
    assert driver_requirement(ptx) == Requirement("driver", cuda)


@pytest.mark.parametrize("text", ["", "not ptx", "// .version 9.0\n"])
def test_a_text_that_is_no_ptx_is_refused(text: str) -> None:
    """A version in a comment or none at all is wrong data."""
    with pytest.raises(IntegrityError, match="version"):
        driver_requirement(text)
