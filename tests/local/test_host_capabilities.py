"""What a host offers to native code."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from cachesvc.core.requirement import Requirement
from cachesvc.local.host import KINDS, read_capabilities
from cachesvc.local.libstdcxx import find_libstdcxx, offered_versions
from cachesvc.local.machine import Machine

Compile = Callable[..., Path]

ZEN2 = """\
processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 7B12
bugs\t\t: sysret_ss_attrs spectre_v1
flags\t\t: fpu sse sse2 pni ssse3 fma sse4_1 sse4_2 movbe popcnt avx f16c abm bmi1 avx2 bmi2

processor\t: 1
flags\t\t: fpu
"""
GRAVITON3 = """\
processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes atomics asimdhp cpuid sve asimdfhm i8mm bf16
CPU implementer\t: 0x41
"""


def offers(glibcxx: str, cxxabi: str) -> str:
    """The source of a library that names these versions as libstdc++ names its own."""
    return (
        f'const char one[] = "GLIBCXX_{glibcxx}", two[] = "CXXABI_{cxxabi}", none[] = "GLIBCXX_";'
    )


@pytest.fixture
def nowhere(tmp_path: Path) -> Machine:
    """A machine on which no libstdc++ is mapped, in a prefix or in the loader's cache."""
    absent = tmp_path / "absent"
    return Machine(environ={}, maps=absent, loader_cache=absent, prefixes=())


def test_this_host_is_read_whole() -> None:
    """Everything but the GPU driver has an answer on a Linux machine with glibc."""
    capabilities = read_capabilities()
    if platform.machine() == "x86_64":
        assert "sse2" in capabilities.isa
    assert capabilities.versions["glibc"] == platform.libc_ver()[1]
    assert capabilities.versions["glibcxx"].startswith("3.4.")
    assert capabilities.versions["cxxabi"].startswith("1.3.")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_what_is_asked_for_is_read(kind: str) -> None:
    """Most pulls carry no native unit, and pay for none."""
    capabilities = read_capabilities({kind})
    assert bool(capabilities.isa) == (kind == "isa")
    assert set(capabilities.versions) <= {kind}


def test_an_unknown_kind_is_never_met() -> None:
    """A need that only a newer release knows leaves the unit out."""
    need = Requirement("quantum", "1")
    assert [unmet.requirement for unmet in read_capabilities({"quantum"}).unmet([need])] == [need]


@pytest.mark.parametrize(
    ("text", "present", "absent"),
    [(ZEN2, "avx2", "avx512f"), (GRAVITON3, "asimd", "sve2"), ("", "", "avx2")],
    ids=["x86", "arm", "empty"],
)
def test_cpu_features_are_read_from_cpuinfo(
    text: str, present: str, absent: str, tmp_path: Path
) -> None:
    """x86 and arm write the line under different names; the first processor stands for all."""
    (tmp_path / "cpuinfo").write_text(text)
    isa = read_capabilities({"isa"}, Machine(cpuinfo=tmp_path / "cpuinfo")).isa
    assert absent not in isa
    assert present in isa or not text


def test_a_machine_without_cpuinfo_offers_no_features(tmp_path: Path) -> None:
    """What cannot be read is not offered, and nothing fails."""
    assert read_capabilities({"isa"}, Machine(cpuinfo=tmp_path / "absent")).isa == frozenset()


def test_the_vector_length_of_sve_is_a_feature(tmp_path: Path) -> None:
    """Two CPUs with SVE of different lengths cannot run each other's fixed-length code."""
    (tmp_path / "cpuinfo").write_text(GRAVITON3)
    (tmp_path / "length").write_text("32\n")
    machine = Machine(cpuinfo=tmp_path / "cpuinfo", vector_length=tmp_path / "length")
    assert "sve_bits_256" in read_capabilities({"isa"}, machine).isa


def test_musl_offers_no_glibc() -> None:
    """A library linked against glibc does not fit a musl system."""
    capabilities = read_capabilities({"glibc"}, Machine(confstr=lambda _: None))
    (unmet,) = capabilities.unmet([Requirement("glibc", "2.17")])
    assert str(unmet) == "needs glibc 2.17, this host has no glibc"


def test_the_highest_version_is_by_number(compile_library: Compile) -> None:
    """3.4.9 is older than 3.4.30, and a bare series name is no version."""
    source = offers("3.4.9", "1.3.13") + 'const char more[] = "GLIBCXX_3.4.30";'
    assert offered_versions(compile_library(source)) == {"glibcxx": "3.4.30", "cxxabi": "1.3.13"}


def test_the_mapped_library_comes_first(
    nowhere: Machine, compile_library: Compile, tmp_path: Path
) -> None:
    """What the process has already is what its libraries get, whatever lies on disk."""
    mapped = tmp_path / "one" / "libstdc++.so.6.0.33"
    mapped.parent.mkdir()
    compile_library(offers("3.4.33", "1.3.15")).rename(mapped)
    maps = tmp_path / "maps"
    maps.write_text(
        "7f0000000000-7f0000001000 r--p 00000000 08:01 11    /usr/lib/libc.so.6\n"
        f"7f0000100000-7f0000200000 r-xp 00000000 08:01 12    {mapped}\n"
    )
    machine = Machine(environ={}, maps=maps, loader_cache=nowhere.maps)
    assert find_libstdcxx(machine) == mapped
    assert read_capabilities({"glibcxx"}, machine).versions == {"glibcxx": "3.4.33"}


def test_a_conda_environments_own_library_beats_the_systems(
    nowhere: Machine, compile_library: Compile, tmp_path: Path
) -> None:
    """An interpreter with its own lib folder loads the libstdc++ from there."""
    own = tmp_path / "conda" / "lib" / "libstdc++.so.6"
    path = tmp_path / "searched" / "libstdc++.so.6"
    for place, version in ((own, "3.4.34"), (path, "3.4.20")):
        place.parent.mkdir(parents=True)
        compile_library(offers(version, "1.3.15")).rename(place)
    environ = {"LD_LIBRARY_PATH": f":{path.parent}"}
    absent = nowhere.maps
    conda = Machine(environ=environ, maps=absent, prefixes=(tmp_path / "conda",))
    plain = Machine(environ=environ, maps=absent, prefixes=())
    assert read_capabilities({"glibcxx"}, conda).versions == {"glibcxx": "3.4.34"}
    assert read_capabilities({"glibcxx"}, plain).versions == {"glibcxx": "3.4.20"}


def test_a_library_for_another_machine_is_passed_over(
    nowhere: Machine, compile_library: Compile, tmp_path: Path
) -> None:
    """The loader's cache lists 32-bit libraries too."""
    narrow, ours = tmp_path / "32" / "libstdc++.so.6", tmp_path / "64" / "libstdc++.so.6"
    for place in (narrow, ours):
        place.parent.mkdir()
        compile_library(offers("3.4.31", "1.3.14")).rename(place)
    data = bytearray(narrow.read_bytes())
    data[4] = 1
    narrow.write_bytes(data)
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(b"\0".join((b"head", os.fsencode(narrow), os.fsencode(ours), b"tail")))
    machine = Machine(environ={}, maps=nowhere.maps, loader_cache=cache, prefixes=())
    assert find_libstdcxx(machine) == ours
