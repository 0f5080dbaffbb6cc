"""What a process publishes: it converges, it never shrinks, and it is never empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.manifest import Manifest
from cachesvc.start.settings import open_repository

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")


def manifests(store: Path, name: str) -> list[Manifest]:
    repository = open_repository(store, None)
    return [
        segment.manifest
        for bundle in repository.bundles(name)
        for segment in repository.read(bundle).segments
    ]


def keys(store: Path, name: str, section: str = "") -> set[str]:
    found = {unit.key for manifest in manifests(store, name) for unit in manifest.units}
    return {key for key in found if key.startswith(section)}


def test_the_first_push_says_what_it_saw(fused: Published) -> None:
    """Units of all layers, what its libraries need of a host, the context, and the proof."""
    (manifest,) = manifests(fused.store, "fused")
    sections = {unit.section for unit in manifest.units}
    assert sections == {"inductor", "megacache"}
    assert any(path.path.endswith(".so") for unit in manifest.units for path in unit.entries)
    needs = {need.kind for unit in manifest.units for need in unit.requires}
    assert {"isa", "glibc"} <= needs
    assert all(unit.origin.context["threads"] == "1" for unit in manifest.units)
    assert manifest.proof is not None
    assert manifest.proof.verdict == "cold"
    assert manifest.proof.cold_s == fused.report["first_call_s"]
    assert manifest.coverage == ("(float32[2, 4])",)
    assert manifest.model["class"] == "tiny_models.Fused"


def test_compiling_the_same_again_publishes_nothing(starts: Starts, fused: Published) -> None:
    """Another fresh directory, compiled cold: other file names, other libraries, the same units."""
    verdict, builds, segment = starts.run(
        """
model = torch.compile(Fused())
report = start(model, [ones()], store=given["store"] + "-empty")
result = [report.verdict, report.counts.cpp_builds, push(model, report)]
""",
        store=fused.store,
        label="fused",
    )
    assert (verdict, builds) == ("cold", 1)
    assert segment is None


def test_a_mega_cache_alone_is_partial(starts: Starts, fused: Published, tmp_path: Path) -> None:
    """All counters say hit while the C++ is compiled again: that is not warm, and the report says
    what to publish instead."""
    file = tmp_path / "mega.bin"
    report = starts.run(
        """
cachesvc.pull("fused", store=given["store"], mega=given["file"])
cachesvc.push(torch.compile(Fused()), store=given["mine"], label="mega", mega=given["file"])
result = shown(start(torch.compile(Fused()), [ones()], store=given["mine"], label="mega"))
""",
        store=fused.store,
        given={"file": str(file), "mine": str(tmp_path / "mine")},
    )
    assert report["tier"] == "megacache"
    assert report["counts"]["graph_hits"] == 1
    assert report["counts"]["graph_misses"] == 0
    assert report["counts"]["cpp_builds"] == report["counts"]["native_builds"] > 0
    assert report["verdict"] == "partial"
    assert "publish the cache directories, not only a mega-cache" in report["text"]


def test_load_run_save_does_not_shrink_a_bundle(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """A process that loaded a mega-cache, called an old and a new shape and saved: the store has
    the old artifacts and the new ones."""
    mine = tmp_path / "mine"
    verdict = starts.run(
        """
file = given["store"] + "/mega.bin"
os.makedirs(given["store"])
cachesvc.pull("plain", store=given["plain"], mega=file)
model = torch.compile(Plain())
cachesvc.push(model, store=given["store"], label="mega", mega=file)
report = start(model, calls=[[ones(2, 4)], [ones(3, 4)]])
push(model, report)
result = report.verdict
""",
        store=mine,
        label="mega",
        given={"plain": str(plain.store)},
    )
    assert verdict == "partial"
    old = keys(plain.store, "plain", "megacache/")
    assert len(old) == 2
    assert old < keys(mine, "mega", "megacache/")
    assert keys(mine, "mega", "inductor/")
    assert len(manifests(mine, "mega")) == 1


def test_nothing_compiled_is_refused(starts: Starts, tmp_path: Path) -> None:
    """A bundle is never empty: the push says why, and leaves no object in the store."""
    error = starts.run(
        """
from cachesvc.core.errors import TccacheError
try:
    push(torch.compile(Plain()))
except TccacheError as error:
    result = str(error)
""",
        store=tmp_path / "store",
        label="empty",
    )
    assert error.startswith("nothing to publish under empty/")
    assert "compile the model first" in error
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_two_processes_publish_their_own_additions(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """What a warm process compiled in addition is added; the next start finds the union warm."""
    script = """
model = torch.compile(Plain(), dynamic=False)
report = start(model, calls=[[ones(*shape)] for shape in given["shapes"]])
result = [shown(report), push(model, report)]
"""

    def run(*shapes: tuple[int, int]) -> Any:
        given = {"shapes": shapes}
        return starts.run(script, store=tmp_path / "store", label="shapes", given=given)

    (first, _), (second, _), (third, segment) = (
        run((2, 4)),
        run((2, 4), (3, 4)),
        run((3, 4), (2, 4)),
    )
    assert [r["verdict"] for r in (first, second, third)] == ["cold", "partial", "warm"]
    assert segment is None
    (manifest,) = manifests(tmp_path / "store", "shapes")
    assert manifest.coverage == ("(float32[2, 4])", "(float32[3, 4])")
    assert len({unit.origin.segment for unit in manifest.units}) == 2
