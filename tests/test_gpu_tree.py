"""A real tree of an H200 goes through a store, here without a GPU, and Triton still reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.manifest import Unit
from cachesvc.local.host import read_capabilities
from cachesvc.local.layout import is_group
from cachesvc.repository.repository import Repository
from cachesvc.start.pull import Pulled, pull
from cachesvc.start.push import Pushed, push
from cachesvc.store.location import open_store

TRITON = Path(__file__).parents[1] / ".venv" / "triton"
NAME = "h200"

READ_GROUPS = """
import json, os, sys
from triton.runtime.cache import FileCacheManager

found = {}
for key in sorted(os.listdir(os.environ["TRITON_CACHE_DIR"])):
    manager = FileCacheManager(key)
    for name in sorted(os.listdir(manager.cache_dir)):
        if name.startswith("__grp__"):
            found[f"{key}/{name}"] = manager.get_group(name.removeprefix("__grp__"))
json.dump(found, sys.stdout)
"""

READ_MEGA_CACHE = """
import hashlib, json, sys
from pathlib import Path
from torch.compiler._cache import CacheArtifactManager

def shown(path):
    artifacts = CacheArtifactManager.deserialize(Path(path).read_bytes())
    return [
        [kind, artifact.key, hashlib.sha256(artifact.content).hexdigest()]
        for kind, group in artifacts.items()
        for artifact in group
    ]

json.dump([shown(path) for path in sys.argv[1:]], sys.stdout)
"""


@dataclass(frozen=True)
class Journey:
    """A tree, the store it was pushed to, and the place it was pulled to."""

    tree: Path
    store: Path
    place: Path
    environment: dict[str, str]
    pushed: Pushed
    pulled: Pulled

    def push(self) -> Pushed:
        return push_tree(self.tree, self.store, self.environment)

    def pull(self) -> Pulled:
        return pull_tree(self.place, self.store, self.environment)

    def units(self) -> Iterator[Unit]:
        repository = Repository(open_store(str(self.store)))
        for bundle in repository.bundles(NAME):
            for segment in repository.read(bundle).segments:
                yield from segment.units


def push_tree(tree: Path, store: Path, environment: dict[str, str] | None) -> Pushed:
    return push(
        NAME,
        store=store,
        inductor_dir=tree / "inductor",
        triton_dir=tree / "triton",
        mega=tree / "mega.bin",
        environment=environment,
    )


def pull_tree(place: Path, store: Path, environment: dict[str, str]) -> Pulled:
    return pull(
        NAME,
        store=store,
        inductor_dir=place / "inductor",
        triton_dir=place / "triton",
        mega=place / "mega.bin",
        environment=environment,
    )


def fingerprint(tree: Path) -> dict[str, str]:
    """The environment that the tree's recorder noted, under the names of a fingerprint."""
    origin = json.loads((tree / "origin.json").read_text())
    return {
        **{name: origin[name] for name in ("torch", "torch_git", "triton")},
        **{name: origin[name] for name in ("device", "capability")},
        "runtime": f"cuda {origin['cuda']}",
        "python": "cpython-312-x86_64-linux-gnu",
        "platform": "linux-x86_64-glibc",
    }


@pytest.fixture(scope="module")
def journey(h200_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    folder = tmp_path_factory.mktemp("journey")
    store, place, environment = folder / "store", folder / "place", fingerprint(h200_tree)
    pushed = push_tree(h200_tree, store, environment)
    pulled = pull_tree(place, store, environment)
    return Journey(h200_tree, store, place, environment, pushed, pulled)


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if ".tccache" not in path.relative_to(folder).parts
    }


def run(source: str, *args: str, **environ: str) -> Any:
    result = subprocess.run(
        [sys.executable, "-c", source, *args],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(result.stdout)


def groups_found_by_triton(folder: Path) -> dict[str, dict[str, str]]:
    found = run(READ_GROUPS, PYTHONPATH=str(TRITON), TRITON_CACHE_DIR=str(folder))
    assert isinstance(found, dict)
    return found


needs_triton = pytest.mark.skipif(not TRITON.is_dir(), reason="`make .venv/.triton` unpacks Triton")


def test_the_pack_is_small(journey: Journey) -> None:
    """The pack's long window sees that the tree holds everything several times: 3 % are left."""
    assert journey.pushed.bytes > 70e6
    assert journey.pushed.publication.pack_bytes <= 0.03 * journey.pushed.bytes


def test_every_file_arrives_as_it_was(journey: Journey) -> None:
    """All files come out byte by byte, but for the groups, which name their new place."""
    before = {f"inductor/{p}": data for p, data in files(journey.tree / "inductor").items()}
    before |= {f"triton/{p}": data for p, data in files(journey.tree / "triton").items()}
    after = {f"inductor/{p}": data for p, data in files(journey.place / "inductor").items()}
    after |= {f"triton/{p}": data for p, data in files(journey.place / "triton").items()}
    assert before.keys() == after.keys()
    assert {path for path in before if before[path] != after[path]} == set(filter(is_group, before))
    assert journey.pushed.skipped == ()


@needs_triton
def test_triton_finds_every_group_at_the_new_place(journey: Journey) -> None:
    """Triton's own reader gets all files of all 90 groups, each in its own folder, all there."""
    found = groups_found_by_triton(journey.place / "triton")
    assert len(found) == 90
    for where, group in found.items():
        folder = (journey.place / "triton" / where).parent
        listed = json.loads((journey.tree / "triton" / where).read_text())["child_paths"]
        assert group == {name: str(folder / name) for name in listed}
        assert all(Path(path).is_file() for path in group.values())


@needs_triton
def test_triton_finds_no_group_in_a_plain_copy(journey: Journey) -> None:
    """Copied without relocation the same tree is worth nothing: what the test above guards."""
    found = groups_found_by_triton(journey.tree / "triton")
    assert len(found) == 90
    assert not any(found.values())


def test_torch_reads_the_same_mega_cache(journey: Journey) -> None:
    """Taken apart and put together, it holds what torch keeps of the first: of two tuning results
    under one key the last."""
    paths = (str(folder / "mega.bin") for folder in (journey.tree, journey.place))
    before, after = run(READ_MEGA_CACHE, *paths)
    last = {(kind, key): digest for kind, key, digest in before}
    assert len(before) == 16
    assert len(last) == len(after) == journey.pulled.artifacts == 14
    assert {(kind, key): digest for kind, key, digest in after} == last


def test_a_second_push_writes_nothing(journey: Journey) -> None:
    """The store has it all: no object is written or changed."""
    before = files(journey.store)
    assert journey.push().publication.segment is None
    assert files(journey.store) == before


def test_a_second_pull_of_directories_brings_nothing(journey: Journey) -> None:
    """Everything lies in place: no pack is fetched, no unit seeded."""
    again = pull(
        NAME,
        store=journey.store,
        inductor_dir=journey.place / "inductor",
        triton_dir=journey.place / "triton",
        environment=journey.environment,
    ).transfer
    assert (again.packs, again.bytes, again.seeded) == (0, 0, 0)
    assert again.in_place == journey.pulled.transfer.seeded - journey.pulled.artifacts


def test_a_second_pull_of_everything_brings_nothing(journey: Journey) -> None:
    """The mega-cache file lies there from the first time, too."""
    again = journey.pull().transfer
    assert (again.packs, again.bytes, again.seeded) == (0, 0, 0)


def test_another_machines_bundle_is_moved_whole(journey: Journey) -> None:
    """The kernels need a driver that this machine lacks; moved for an H200 they are all brought."""
    needs = {need for unit in journey.units() for need in unit.requires}
    assert {"driver", "glibc"} <= {need.kind for need in needs}
    assert read_capabilities({"isa"}).unmet(needs)
    assert journey.pulled.transfer.left_out == ()
    assert journey.pulled.transfer.seeded == journey.pushed.units


def test_kernels_pushed_as_this_machines_are_warned_of(journey: Journey, tmp_path: Path) -> None:
    """Without the H200's fingerprint they land where no H200 will look, and the push says so."""
    assert journey.pushed.warnings == ()
    warnings = push_tree(journey.tree, tmp_path, None).warnings
    assert any("cuda 90" in text and "--environment" in text for text in warnings)
