"""Models whose repeated blocks are compiled as regions: built, started warm, run eagerly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.report import Verdict

from .builds import Builds

pytestmark = pytest.mark.xdist_group("start")


@pytest.fixture(scope="session")
def builds(fresh: Any) -> Builds:
    return Builds(fresh)


@pytest.fixture(scope="session")
def store(builds: Builds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a build of four equal blocks, without functions."""
    store = tmp_path_factory.mktemp("regions") / "store"
    built = builds.build("region_targets:regions", store=store, tier="no-aot")
    assert built.verdict is Verdict.WARM
    return store


def test_regions_start_warm(builds: Builds, store: Path) -> None:
    """One graph serves all blocks and comes out of the bundle, also where weights are loaded after
    compile_regions; the outputs are eager's."""
    report, apart = builds.serve(
        """
workload = load_seeded("region_targets:loaded_later")
((batch,),) = workload.calls
with torch.no_grad():
    report = cachesvc.warm_start(workload.model, [batch], store=given["store"], label="regions")
    out = workload.model(batch)
expected, = eager("region_targets:loaded_later")
result = [report.to_json(), float((out - expected).abs().max())]
""",
        store=store,
    )
    assert report["verdict"] == "warm"
    counts = report["counts"]
    assert (counts["graphs"], counts["graph_misses"], counts["native_builds"]) == (1, 0, 0)
    assert report["bundle"]
    assert not report["fallback"]
    assert apart == pytest.approx(0, abs=1e-6)


def test_the_whole_model_is_another_one(builds: Builds, store: Path) -> None:
    """A start of the same model compiled as a whole does not take the regions' bundle for its own,
    and the difference is what is compiled."""
    found = builds.serve(
        """
from region_targets import Block, Net
whole = Net(Block, 4).eval()
told = cachesvc.explain(whole, store=given["store"], label="regions")
result = [str(item) for item in told.model]
""",
        store=store,
    )
    assert [text.partition(":")[0] for text in found] == ["compile blocks.*"]


def test_a_miss_that_is_to_run_eagerly(builds: Builds, tmp_path: Path) -> None:
    """With on_miss="eager" and nothing in the store no region is compiled."""
    (tmp_path / "store").mkdir()
    report, apart = builds.serve(
        """
workload = load_seeded("region_targets:regions")
expected = workload.model.blocks[0].forward(workload.calls[0][0])
outputs = []
workload.model.blocks[0].register_forward_hook(lambda _, __, out: outputs.append(out))
with torch.no_grad():
    report = cachesvc.warm_start(
        workload.model, calls=workload.calls, store=given["store"], on_miss="eager"
    )
result = [report.to_json(), float((outputs[0] - expected).abs().max())]
""",
        store=tmp_path / "store",
    )
    assert report["verdict"] == "eager"
    assert report["counts"]["graphs"] == 0
    assert apart == 0


@pytest.mark.slow
def test_training_of_blocks_that_are_traced_each(builds: Builds, tmp_path: Path) -> None:
    """Twelve graphs forward, and as many backward, all from the cache."""
    built = builds.build("region_targets:indexed_training", store=tmp_path / "store")
    assert built.verdict is Verdict.WARM
    report = builds.serve(
        'result = serve("region_targets:indexed_training")[0].to_json()', store=tmp_path / "store"
    )
    assert (report["verdict"], report["counts"]["graphs"]) == ("warm", 12)


@pytest.mark.slow
def test_sixteen_layers_with_a_static_cache(builds: Builds, tmp_path: Path) -> None:
    """Each layer is traced and none falls back to eager; the compiler makes what two of them need,
    and a serving process compiles nothing."""
    built = builds.build("region_targets:llama", store=tmp_path / "store")
    assert built.verdict is Verdict.WARM
    report = builds.serve(
        'result = serve("region_targets:llama")[0].to_json()', store=tmp_path / "store"
    )
    assert report["verdict"] == "warm"
    assert report["counts"]["graphs"] == 16
