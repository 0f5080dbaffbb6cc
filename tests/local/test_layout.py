"""The layout of Inductor's and Triton's directories, on paths that real processes left."""

from __future__ import annotations

import pytest

from cachesvc.core.paths import belongs, path_issue
from cachesvc.local.layout import (
    entry_parts,
    is_group,
    is_passed_over,
    is_temporary,
    seed_order,
    unit_key,
)

FX = "fw4ghzu2xypkltla35razcvo3rkcmq2vhd35gmmvvsz4f36oxmgn"
FX_FILE = "uk4d3g3576yrwh7gs2eln5qkppx2clap27hoiwndqh2lhacnf32"
AOT = "axc46xxkynhuoc7j77sqy7ho32yfcvuhmm7ux3ghdz3ctnxdfsdz"
AOT_FILE = "6ysupa2xejrj76ajcapqlvpy4upnhdxgxxfutwob2doywz3zqeg"
STEM = "cbbn7vqqv55thvn2b5ioug7p7tm23jebotyvrv6mrfh7jfylwigh"
TUNED = "72e7a5d130371018a12851dd5fa4e5008ef806f73b174eb29856e708f6af3b0e"
SYSTEM = "c33ff64252de0fc95aafeb63c22d2f93666cf684f9102841c20702613368c40d"
KERNEL = "2ETZW77EG47K4BPEZWZ7MYSDDY4QAMWXLGANQJ22RCWAHOP4K6QA"
LAUNCHER = "__triton_launcher.cpython-312-x86_64-linux-gnu.so"

PLACED = [
    # where a file lies below the section's directory, its entry path, its unit
    ("inductor", f"fxgraph/w4/{FX}/{FX_FILE}", None, f"inductor/fxgraph/w4/{FX}"),
    ("inductor", f"aotautograd/{AOT}/{AOT_FILE}", None, f"inductor/aotautograd/{AOT}"),
    ("inductor", f"bb/{STEM}.main.cpp", None, f"inductor/bb/{STEM}"),
    ("inductor", f"bb/{STEM}.main.so", None, f"inductor/bb/{STEM}"),
    ("inductor", f"2e/{STEM}.kernel_perf", None, f"inductor/2e/{STEM}"),
    ("inductor", f"2e/{STEM}.py", None, f"inductor/2e/{STEM}"),
    ("inductor", f"mf/{TUNED}.best_config", None, f"inductor/mf/{TUNED}"),
    ("inductor", f"cache/{SYSTEM}", None, f"inductor/cache/{SYSTEM}"),
    ("inductor", "dynamo/code_state_0a1b.pkl", None, "inductor/dynamo/code_state_0a1b.pkl"),
    ("inductor", "something/new/of/torch.bin", None, "inductor/something/new/of/torch.bin"),
    ("inductor", "loose.txt", None, "inductor/loose.txt"),
    ("inductor", "fxgraph/loose.txt", None, "inductor/fxgraph/loose.txt"),
    ("inductor", f"triton/0/{KERNEL}/k.cubin", f"triton/{KERNEL}/k.cubin", f"triton/{KERNEL}"),
    (
        "inductor",
        f"triton/7/{KERNEL}/{LAUNCHER}",
        f"triton/{KERNEL}/{LAUNCHER}",
        f"triton/{KERNEL}",
    ),
    ("inductor", f"triton/{KERNEL}/k.ptx", f"triton/{KERNEL}/k.ptx", f"triton/{KERNEL}"),
    ("inductor", "triton/0/loose.txt", None, "inductor/triton/0/loose.txt"),
    ("inductor", "triton/loose.txt", None, "inductor/triton/loose.txt"),
    ("inductor", "triton", None, "inductor/triton"),
    ("triton", f"{KERNEL}/__grp__k.json", None, f"triton/{KERNEL}"),
    ("triton", f"{KERNEL}/k.json", None, f"triton/{KERNEL}"),
    ("triton", "loose.txt", None, "triton/loose.txt"),
    ("extra", "vllm/ab/c/rank_0_0/graph", None, "extra/vllm/ab/c/rank_0_0/graph"),
    ("megacache", f"inductor/{FX}/0123", None, f"megacache/inductor/{FX}"),
]


@pytest.mark.parametrize(("section", "path", "entry", "unit"), PLACED)
def test_every_file_has_one_unit(section: str, path: str, entry: str | None, unit: str) -> None:
    """Real paths go to the unit that the compiler uses whole; what is not known is its own."""
    parts = entry_parts(section, path.split("/"))
    assert "/".join(parts) == (entry or f"{section}/{path}")
    assert unit_key(parts) == unit
    assert belongs("/".join(parts), unit)
    assert path_issue("/".join(parts)) is None


@pytest.mark.parametrize(
    "name",
    [
        "locks",
        f"{STEM}.lock",
        ".4242.140231.tmp",
        ".tccache",
        ".tccache-stage-0a1b2c3d-x",
        "tmp.pid_4242_5c0c2e7c-91f4-4f3a-8a39-1f1c8a4a7d10",
        "tmp.5c0c2e7c-91f4-4f3a-8a39-1f1c8a4a7d10",
        "code_state_0a1b.pkl.tmp",
        "k.o.tmp",
        "graph.tmp_17",
        "graph.tmp17",
        "kernel.tmp.so",
        "kernel.py~",
    ],
)
def test_temporaries_are_known_by_their_names(name: str) -> None:
    """Locks, dot-files and half-written files of torch, Triton, editors and this library."""
    assert is_temporary(name)


@pytest.mark.parametrize(
    "name", [f"{STEM}.so", "k.tmpl", "template.py", "blocks", "lock", "tmpfile"]
)
def test_other_names_are_kept(name: str) -> None:
    """A name that only looks a little like a temporary's is packed."""
    assert not is_temporary(name)


@pytest.mark.parametrize(
    ("section", "path", "passed_over"),
    [
        ("inductor", "precompiled_headers", True),
        ("inductor", "tmpab12cd_4", True),
        ("inductor", "locks", True),
        ("inductor", "fxgraph", False),
        ("inductor", "ab/tmpab12cd_4", False),
        ("extra", "vllm/tmp_storage", False),
        ("extra", "precompiled_headers", False),
    ],
)
def test_some_folders_of_inductor_are_no_cache(section: str, path: str, passed_over: bool) -> None:
    """Compiled headers, and what `force_disable_caches` leaves, serve no other process."""
    assert is_passed_over(section, path.split("/")) is passed_over


@pytest.mark.parametrize(
    ("path", "group"),
    [
        (f"triton/{KERNEL}/__grp__k.json", True),
        (f"triton/{KERNEL}/k.json", False),
        (f"triton/{KERNEL}/__grp__k.cubin", False),
        ("extra/vllm/__grp__k.json", False),
    ],
)
def test_only_triton_has_groups(path: str, group: bool) -> None:
    """A file of the same name elsewhere is nobody's group, and keeps its bytes."""
    assert is_group(path) is group


def test_what_makes_a_hit_goes_last() -> None:
    """Kernels and libraries, then groups, then FX entries, then the AOTAutograd entries."""
    ordered = [
        f"triton/{KERNEL}/k.cubin",
        f"triton/{KERNEL}/__grp__k.json",
        f"inductor/fxgraph/w4/{FX}/{FX_FILE}",
        f"inductor/aotautograd/{AOT}/{AOT_FILE}",
    ]
    assert [seed_order(path) for path in ordered] == [0, 1, 2, 3]
    assert seed_order(f"inductor/bb/{STEM}.main.so") == 0
