"""The compiler's counters: what was compiled, what was built, and what could not be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fresh_processes import FreshProcesses

from cachesvc.core.report import Counts
from cachesvc.runtime import counters, watch
from cachesvc.runtime.counters import Meter

pytestmark = pytest.mark.xdist_group("runtime")

METER = "from cachesvc.runtime.counters import Meter\nmeter = Meter(None)\ncounts = []\n"
COUNT = "counts.append({name: n for name, n in vars_of(meter.read()).items() if n})\n"
NUMBERS = "def vars_of(c): return {f: getattr(c, f) for f in type(c).__dataclass_fields__}\n"


def test_a_real_compile_is_counted(fresh: FreshProcesses) -> None:
    """Graphs, misses, generated code and C++ builds at the first call; nothing at the second."""
    first, second = fresh.run(
        NUMBERS
        + METER
        + f"""
model = torch.compile(Fused())
with torch.no_grad():
    for _ in range(2):
        model(ones())
        {COUNT}
result = counts
"""
    )
    assert first == second
    assert first == {
        "graphs": 1,
        "graph_misses": 1,
        "generated": 1,
        "autograd_misses": 1,
        "cpp_builds": 1,
    }


def test_cached_cleared_and_uncached_compiles_are_counted(fresh: FreshProcesses) -> None:
    """A hit is no generated code, cleared counters begin again at zero, and a compile with all
    caches switched off is a compile."""
    missed, hit, cleared, uncached = fresh.run(
        NUMBERS
        + METER
        + f"""
def call(model):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model)(ones())

call(Plain())
{COUNT}
meter = Meter(None)
call(Plain())
{COUNT}
torch._dynamo.utils.counters.clear()
call(Other())
{COUNT}
torch._inductor.config.force_disable_caches = True
meter = Meter(None)
call(Plain())
{COUNT}
result = counts
"""
    )
    assert missed == {"graphs": 1, "graph_misses": 1, "generated": 1, "autograd_misses": 1}
    assert hit == {"graphs": 1, "graph_hits": 1, "autograd_hits": 1}
    assert cleared == missed
    assert uncached == {"graphs": 1, "generated": 1}


def test_graphs_that_autograd_does_not_store_are_counted(fresh: FreshProcesses) -> None:
    """A forward pass with gradients leaves no entry; its backward pass, or no gradients, does."""
    unstored = fresh.run("""
from cachesvc.runtime.counters import Meter
result = []
for call in ("forward", "backward", "none"):
    torch._dynamo.reset()
    meter = Meter(None)
    with torch.set_grad_enabled(call != "none"):
        output = torch.compile(Plain({"forward": 2, "backward": 3, "none": 4}[call]))(ones())
    if call == "backward":
        output.sum().backward()
    result.append(meter.unstored())
""")
    assert unstored == [1, 0, 0]


@pytest.mark.parametrize(
    ("taken", "missing"),
    [
        (
            "import torch._inductor.cpp_builder as module; del module.CppBuilder.build",
            "torch._inductor.cpp_builder.CppBuilder.build",
        ),
        ("del torch._dynamo.utils.counters", "torch._dynamo.utils.counters"),
    ],
    ids=["CppBuilder.build", "counters"],
)
def test_a_missing_counter_is_named(fresh: FreshProcesses, taken: str, missing: str) -> None:
    """A torch without one of the private names is no error: the name is `unread`."""
    unread = fresh.run(f"{taken}\n{METER}result = meter.read().unread")
    assert unread == [missing]


def test_without_the_compiler_there_is_nothing_to_count() -> None:
    """Where Dynamo is not imported all counts are zero, and counting imports nothing of torch."""
    code = (
        "import sys\n"
        "from cachesvc.core.report import Counts\n"
        "from cachesvc.runtime.counters import Meter, compiled_so_far\n"
        "assert Meter(None).read() == Counts() and compiled_so_far() == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_triton_builds_are_the_keys_that_appeared(tmp_path: Path) -> None:
    """Each new name in Triton's directory is a build; what was there, and temporaries, are not."""
    (tmp_path / "OLD").mkdir()
    meter = Meter(tmp_path)
    assert meter.read().triton_builds == 0
    for name in ("NEW", "NEWER", "tmp.pid_1_2", ".hidden"):
        (tmp_path / name).mkdir()
    assert meter.read().triton_builds == 2
    assert meter.read().native_builds == 2


def test_a_triton_directory_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    """The first kernel makes the directory, and is counted."""
    meter = Meter(tmp_path / "triton")
    (tmp_path / "triton" / "KEY").mkdir(parents=True)
    assert meter.read().triton_builds == 1


@pytest.fixture
def _builds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch.Seen()
    for module in (counters, watch):
        monkeypatch.setattr(module, "seen", seen)


@pytest.mark.usefixtures("_builds")
def test_kernels_out_of_a_cache_entry_are_not_built(tmp_path: Path) -> None:
    """What a hit writes into Triton's directory is not counted; what is built beside it is."""

    class TritonBundler:
        @staticmethod
        def read_and_emit(bundle: Any) -> int:
            for item in bundle.kernel_artifacts:
                (tmp_path / item.kernel_hash).mkdir()
            return 7

    module = ModuleType("torch._inductor.triton_bundler")
    module.TritonBundler = TritonBundler  # type: ignore[attr-defined]
    watch._watch_bundler(module)
    meter = Meter(tmp_path)
    kernels = [SimpleNamespace(kernel_hash="ONE"), SimpleNamespace(kernel_hash="TWO")]
    assert TritonBundler.read_and_emit(SimpleNamespace(kernel_artifacts=kernels)) == 7
    (tmp_path / "BUILT").mkdir()
    assert meter.read() == Counts(triton_builds=1)


@pytest.mark.usefixtures("_builds")
def test_a_torch_without_the_bundler_counts_kernels_as_built(tmp_path: Path) -> None:
    """Then a start can look worse than it was, never better; nothing raises."""
    watch._watch_bundler(ModuleType("torch._inductor.triton_bundler"))
    meter = Meter(tmp_path)
    (tmp_path / "EMITTED").mkdir()
    assert meter.read() == Counts(triton_builds=1)
