"""Which CPU features the machine code of an x86-64 library uses."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

# What every x86-64 CPU has, or runs as a no-operation (CET_IBT, MULTIBYTENOP, PAUSE), in the
# names of iced-x86's CpuidFeature.
BASELINE = frozenset(
    {
        *("INTEL8086", "INTEL8086_ONLY", "INTEL186", "INTEL286", "INTEL286_ONLY"),
        *("INTEL386", "INTEL386_ONLY", "INTEL386_A0_ONLY", "INTEL486", "INTEL486_A_ONLY"),
        *("FPU", "FPU287", "FPU287XL_ONLY", "FPU387", "FPU387SL_ONLY"),
        *("X64", "CMOV", "CPUID", "CX8", "CLFSH", "FXSR", "MMX", "MSR", "SSE", "SSE2"),
        *("SEP", "SYSCALL", "TSC", "CET_IBT", "MULTIBYTENOP", "PAUSE"),
    }
)

# The features that the kernel's arch/x86/include/asm/cpufeatures.h calls otherwise than iced
# does. All others have iced's name in lower case, so that a feature that is in neither table
# gives a requirement that only a host whose kernel prints that name can meet.
RENAMED = {
    "AVX512_IFMA": "avx512ifma",
    "AVX512_VBMI": "avx512vbmi",
    "CET_SS": "user_shstk",
    "CMPXCHG16B": "cx16",
    "D3NOW": "3dnow",
    "D3NOWEXT": "3dnowext",
    "HLE_OR_RTM": "rtm",
    "INVEPT": "ept",
    "INVVPID": "vpid",
    "LZCNT": "abm",
    "MONITORX": "mwaitx",
    "PADLOCK_ACE": "ace",
    "PADLOCK_PHE": "phe",
    "PADLOCK_PMM": "pmm",
    "PADLOCK_RNG": "rng",
    "PREFETCHW": "3dnowprefetch",
    "SGX1": "sgx",
    "SHA": "sha_ni",
    "SKINIT_OR_SVM": "svm",
    "SSE3": "pni",
}


def flag(feature: str) -> str | None:
    """The /proc/cpuinfo name of an iced feature; None for what every x86-64 CPU has."""
    return None if feature in BASELINE else RENAMED.get(feature, feature.lower())


def features_used(sections: Iterable[tuple[int, bytes]]) -> frozenset[str]:
    """The /proc/cpuinfo flags that code at (address, bytes) needs, beyond x86-64 itself.

    A linear sweep: bytes that are no instruction are stepped over. Data among the code, which
    compilers for x86-64 keep apart, may add a feature, and hide one only in the few instructions
    right behind it. Code that a library runs only after asking the CPU counts too.
    Raises ImportError where iced-x86 is not installed.
    """
    from iced_x86 import Decoder

    seen: set[int] = set()
    features: set[int] = set()
    for address, code in sections:
        for instruction in Decoder(64, code, ip=address):
            if instruction.code not in seen:
                seen.add(instruction.code)
                features.update(instruction.cpuid_features())
    flags = (flag(_names()[feature]) for feature in features)
    return frozenset(name for name in flags if name is not None)


@cache
def _names() -> dict[int, str]:
    from iced_x86 import CpuidFeature

    return {value: name for name, value in vars(CpuidFeature).items() if isinstance(value, int)}
