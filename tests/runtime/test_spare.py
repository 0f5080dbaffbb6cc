"""A start whose graphs lie there asks nothing of the compiler; one that compiles lacks nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fresh_processes import FreshProcesses

pytestmark = pytest.mark.xdist_group("spare")

CALL = """
from pathlib import Path
from cachesvc.runtime.counters import Meter
from cachesvc.runtime.spare import spare_all

started = []
events = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.system")
sys.addaudithook(lambda event, given: started.append(str(given[1:2])) if event in events else None)
if given["spared"]:
    spare_all(Path(given["records"]))
meter = Meter(None)
with torch.no_grad():
    torch.compile(Fused())(ones())
counts = meter.read()
result = {
    "hits": counts.graph_hits,
    "misses": counts.graph_misses,
    "builds": counts.cpp_builds,
    "compiled": counts.compiled,
    "started": started,
    "setuptools": "setuptools" in sys.modules,
}
"""
# As a user's process has it, who has set none of these.
PROBING = {
    "TORCHINDUCTOR_VEC_ISA_OK": None,
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": None,
    "TORCHINDUCTOR_COMPILE_THREADS": "2",
}


def call(
    fresh: FreshProcesses,
    folder: Path,
    *,
    spared: bool,
    env: dict[str, str | None] | None = None,
    own: bool = False,
) -> dict[str, Any]:
    """One call of a model with a kernel, in a process that has this directory."""
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    given = {"spared": spared, "records": folder / "records"}
    told = fresh.run(CALL, given=given, env={**inductor, **(env or {})}, own=own)
    return dict(told)


def test_a_start_that_compiles_and_starts_that_do_not(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    """What a spared start has to compile in an empty directory is found by one that is spared
    nothing, which asks the compiler and imports setuptools; a spared one finds it without."""
    cold = call(fresh, tmp_path, spared=True)
    assert (cold["misses"], cold["compiled"]) == (1, 1)
    assert cold["builds"] > 0
    told = call(fresh, tmp_path, spared=False)
    assert (told["hits"], told["misses"], told["builds"]) == (1, 0, 0)
    assert told["started"]
    assert told["setuptools"]
    told = call(fresh, tmp_path, spared=True)
    assert (told["hits"], told["misses"], told["builds"]) == (1, 0, 0)
    assert (told["started"], told["setuptools"]) == ([], False)


@pytest.mark.slow
def test_the_probes_of_the_instructions_are_spared(fresh: FreshProcesses, tmp_path: Path) -> None:
    """Also where torch would compile and load test libraries, and where it then does build."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    assert call(fresh, first, spared=False, env=PROBING, own=True)["builds"] > 1
    told = call(fresh, first, spared=True, env=PROBING, own=True)
    assert (told["hits"], told["builds"], told["started"]) == (1, 0, [])
    assert call(fresh, second, spared=True, env=PROBING, own=True)["builds"] > 1
    told = call(fresh, second, spared=False, env=PROBING, own=True)
    headers = sum(".gch" in line or ".pch" in line or "-E" in line for line in told["started"])
    assert told["hits"] == 1
    assert told["builds"] <= headers


@pytest.mark.slow
def test_instructions_narrowed_by_hand(fresh: FreshProcesses, tmp_path: Path) -> None:
    """A user who allows fewer of them is obeyed: the library for these is found."""
    narrow = {**PROBING, "ATEN_CPU_CAPABILITY": "avx2"}
    assert call(fresh, tmp_path, spared=False, env=narrow, own=True)["builds"] > 0
    told = call(fresh, tmp_path, spared=True, env=narrow, own=True)
    assert (told["hits"], told["builds"], told["started"]) == (1, 0, [])
