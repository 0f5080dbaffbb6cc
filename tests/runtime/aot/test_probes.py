"""A model and its function, for real: captured here, loaded there, and never wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
QUICK = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "OMP_NUM_THREADS": "1",
}
FEW = (
    *("a hook", "training mode", "layers exchanged", "weights changed in place", "another batch"),
    *("other weights assigned", "autocast", "torch.nn.functional.linear wrapped", "gradients"),
)


def run(work: Path, root: Path, *command: str) -> None:
    """A module of the benchmarks, as it lies under a folder, in a process of its own."""
    places = {"TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **QUICK, **places},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def outcomes(work: Path, root: Path, family: str, *probes: str) -> list[dict[str, Any]]:
    units = str(work / "units" / family)
    output = work / "outcomes.json"
    run(work, root, "benchmarks.probes.run", family, units, str(output), *probes)
    found: list[dict[str, Any]] = json.loads(output.read_text())
    return [outcome for outcome in found if outcome["way"] != "inapplicable"]


@pytest.mark.xdist_group("aot")
def test_a_function_is_used_in_another_checkout_and_only_where_it_is_right(tmp_path: Path) -> None:
    """A model of linear layers; the checkout is elsewhere, and the lines of its code are others."""
    run(tmp_path, ROOT, "benchmarks.probes.record", "mlp", str(tmp_path / "units" / "mlp"))
    moved = tmp_path / "moved"
    for name in ("benchmarks", "cachesvc"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, moved / name, ignore=ignored)
    families = moved / "benchmarks" / "probes" / "families.py"
    families.write_text(families.read_text().replace("\n\n\nclass ", "\n\n\n\n# moved\n\n\nclass "))
    found = outcomes(tmp_path, moved, "mlp", *FEW)
    assert {outcome["way"] for outcome in found} == {"refused", "passed on", "served"}
    assert [outcome["probe"] for outcome in found if outcome["wrong"]] == []
    assert [outcome["probe"] for outcome in found if outcome["missed"]] == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.xdist_group("aot")
def test_no_probe_of_any_family_gives_a_wrong_result(tmp_path: Path) -> None:
    """The whole suite, as docs/reliability.md has it."""
    from benchmarks.probes.__main__ import probed
    from benchmarks.probes.families import FAMILIES

    found = probed([family.name for family in FAMILIES], tmp_path)
    told = [
        f"{name}: {outcome['probe']}, {outcome['moment']}"
        for name, each in found.items()
        for outcome in each
        if outcome["wrong"] or outcome["missed"]
    ]
    assert told == []
