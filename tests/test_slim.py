"""A slim pack: kernels without the texts that no hit reads, and Triton takes them as whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cachesvc.core.manifest import Unit
from cachesvc.local.group import relocate
from cachesvc.local.needs import unit_needs
from cachesvc.local.slim import slim
from cachesvc.local.tree import FoundUnit, scan
from cachesvc.repository.repository import Repository
from cachesvc.start.pull import pull
from cachesvc.start.push import Pushed, push
from cachesvc.store.location import open_store
from tccache.main import group

TRITON = Path(__file__).parents[1] / ".venv" / "triton"
H200 = {
    "torch": "2.11.0",
    "torch_git": "0" * 40,
    "triton": "3.6.0",
    "runtime": "cuda 13.0",
    "device": "nvidia h200",
    "capability": "9.0",
    "python": "cpython-312-x86_64-linux-gnu",
    "platform": "linux-x86_64-glibc",
}

needs_triton = pytest.mark.skipif(not TRITON.is_dir(), reason="`make .venv/.triton` unpacks Triton")

LOAD = """
import json, os, sys
from types import SimpleNamespace
from triton.backends.compiler import GPUTarget
from triton.compiler import compiler
from triton.runtime.cache import FileCacheManager

# What Triton's own backend for this GPU says; it is not asked to load anything.
compiler.make_backend = lambda target: SimpleNamespace(
    binary_ext="cubin", pack_metadata=lambda metadata: metadata
)
loaded = {}
for key in sorted(os.listdir(os.environ["TRITON_CACHE_DIR"])):
    manager = FileCacheManager(key)
    for name in sorted(os.listdir(manager.cache_dir)):
        if name.startswith("__grp__"):
            group = manager.get_group(name.removeprefix("__grp__"))
            if not any(child.endswith(".cubin") for child in group):
                continue
            kernel = compiler.CompiledKernel(None, group, key)
            assert kernel.kernel == kernel.asm["cubin"] and kernel.asm.get("llir") is None
            try:
                kernel.asm["ptx"]
            except KeyError as error:
                loaded[key] = str(error)
json.dump(loaded, sys.stdout)
"""


def push_tree(tree: Path, store: Path, **options: Any) -> Pushed:
    return push(
        "h200",
        store=store,
        inductor_dir=tree / "inductor",
        triton_dir=tree / "triton",
        environment=H200,
        **options,
    )


def pull_tree(store: Path, place: Path) -> None:
    pull(
        "h200",
        store=store,
        inductor_dir=place / "inductor",
        triton_dir=place / "triton",
        environment=H200,
    )


def stored(store: Path) -> dict[str, Unit]:
    repository = Repository(open_store(str(store)))
    (bundle,) = repository.bundles("h200")
    return {unit.key: unit for s in repository.read(bundle).segments for unit in s.units}


@pytest.fixture(scope="module")
def units(h200_tree: Path) -> tuple[FoundUnit, ...]:
    return scan([("triton", h200_tree / "triton")]).units


@pytest.fixture(scope="module")
def place(h200_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a slim push of the tree was pulled to, beside its store."""
    folder = tmp_path_factory.mktemp("slim")
    push_tree(h200_tree, folder / "store", slim=True)
    pull_tree(folder / "store", folder)
    return folder


def suffixes(unit: FoundUnit) -> set[str]:
    return {Path(file.path).suffix for file in unit.files}


def test_texts_are_left_out(units: tuple[FoundUnit, ...]) -> None:
    """Of every kernel binary, metadata and group are left; the group lists what is left."""
    kernels = [unit for unit in units if ".cubin" in suffixes(unit)]
    assert len(kernels) > 50
    for unit in map(slim, kernels):
        assert suffixes(unit) == {".cubin", ".json"}
        (listed,) = (file for file in unit.files if "__grp__" in file.path)
        names = {Path(file.path).name for file in unit.files if file is not listed}
        assert listed.content
        assert set(json.loads(listed.content)["child_paths"].values()) == names
        assert listed.size == len(listed.content)


def test_what_is_no_kernel_stays(units: tuple[FoundUnit, ...]) -> None:
    """Launchers, and kernels whose binary nobody here knows, are packed as they are."""
    others = [unit for unit in units if ".cubin" not in suffixes(unit)]
    assert others
    assert all(slim(unit) is unit for unit in others)


def test_an_unknown_binary_stays(tmp_path: Path) -> None:
    """A group without a binary that is known keeps its texts."""
    folder = tmp_path / ("K" * 52)
    folder.mkdir()
    names = ("k.ttir", "k.novel", "k.json")
    for name in names:
        (folder / name).write_text("{}")
    listed = json.dumps({"child_paths": {name: str(folder / name) for name in names}})
    (folder / "__grp__k.json").write_text(listed)
    (unit,) = scan([("triton", tmp_path)]).units
    assert slim(unit) is unit
    assert relocate(listed.encode(), "g") in [file.content for file in unit.files]


def test_the_driver_is_still_required(units: tuple[FoundUnit, ...]) -> None:
    """The requirement is read off the PTX, also where that is not packed."""
    for unit in units:
        assert unit_needs(slim(unit)) == unit_needs(unit)
    assert any(need.kind == "driver" for unit in units for need in unit_needs(slim(unit)))


@needs_triton
def test_triton_takes_a_slim_kernel(place: Path) -> None:
    """Triton's own reader makes a kernel of each; who asks for its PTX is told there is none."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        env={
            **os.environ,
            "PYTHONPATH": str(TRITON),
            "TRITON_CACHE_DIR": str(place / "triton"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert len(loaded) > 50
    assert all("ptx" in text for text in loaded.values())


def test_what_was_pulled_slim_is_whole(place: Path) -> None:
    """A push of what was pulled finds nothing to add and nothing broken."""
    pushed = push_tree(place, place / "store")
    assert pushed.publication.segment is None
    assert "part of a broken kernel" not in dict(pushed.skipped)


def test_the_command_has_the_flag(h200_tree: Path, tmp_path: Path) -> None:
    """`tccache push --slim` packs what the function packs."""
    tree = ["--triton-dir", str(h200_tree / "triton")]
    line = ["push", "h200", "--store", str(tmp_path), *tree, "--slim", "--json"]
    told = json.loads(CliRunner().invoke(group, line, catch_exceptions=False).stdout)
    left_out = sum(len(slim(u).left_out) for u in scan([("triton", h200_tree / "triton")]).units)
    assert left_out > 0
    assert told["files"] == len(list((h200_tree / "triton").rglob("*.*"))) - left_out


def test_a_slim_push_takes_nothing_away(h200_tree: Path, tmp_path: Path) -> None:
    """Where the store has whole kernels they stay, and whole ones replace slim ones."""
    push_tree(h200_tree, tmp_path)
    whole = stored(tmp_path)
    assert push_tree(h200_tree, tmp_path, slim=True).publication.segment is None
    assert stored(tmp_path) == whole


def test_a_slim_pull_keeps_whole_kernels(h200_tree: Path, place: Path, tmp_path: Path) -> None:
    """Kernels that lie there with their texts, as a compile here left them, stay as they are."""
    push_tree(h200_tree, tmp_path / "store")
    pull_tree(tmp_path / "store", tmp_path)
    before = {f: f.read_bytes() for f in (tmp_path / "triton").rglob("*") if f.is_file()}
    pull_tree(place / "store", tmp_path)
    after = {f: f.read_bytes() for f in (tmp_path / "triton").rglob("*") if f.is_file()}
    assert {f: data for f, data in after.items() if f in before} == before
