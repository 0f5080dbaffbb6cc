"""build: which functions compiled ahead of time are published with a bundle, and why others not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cachesvc import Built
from cachesvc.core.report import Verdict

from .builds import Builds
from .test_publishing import keys

pytestmark = [pytest.mark.xdist_group("start"), pytest.mark.slow]


@pytest.fixture(scope="session")
def builds(fresh: Any) -> Builds:
    return Builds(fresh)


def built(builds: Builds, function: str, store: Path) -> Built:
    return builds.build(f"ahead_targets:{function}", store=store)


def served(builds: Builds, function: str, store: Path) -> Any:
    """The report of a start from what was built, and the greatest difference from eager."""
    return builds.serve(
        f"""
workload = load_seeded("ahead_targets:{function}")
with torch.no_grad():
    made = [c if callable(c) else (lambda c=c: workload.model(*c)) for c in workload.calls]
    outputs = []
    report = cachesvc.warm_start(
        workload.model, calls=[lambda c=c: outputs.append(c()) for c in made],
        store=given["store"], label=workload.name,
    )
pairs = zip(outputs, eager("ahead_targets:{function}"), strict=True)
result = [report.to_json(), max(float((a - b).abs().max()) for a, b in pairs)]
""",
        store=store,
    )


def test_functions_are_published(builds: Builds, tmp_path: Path) -> None:
    """Beside the directories, with the seconds of the start that verified them; the proof says so,
    and a serving process starts on them."""
    store = tmp_path / "store"
    found = built(builds, "plain", store)
    assert (found.verdict, found.functions, found.aot_reasons) == (Verdict.WARM, 1, ())
    assert found.aot_s is not None
    assert any(
        "1 calls made by 1 functions compiled ahead of time" in text for text in found.verified
    )
    assert len(keys(store, "plain", "aot/")) == 1
    report, apart = served(builds, "plain", store)
    assert (report["verdict"], report["tier"], report["tier_reason"]) == ("warm", "aot", "")
    assert apart == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("function", "reason"),
    [("graph_break", "(float32[2, 4]): "), ("lying", "the output is not what eager torch gives: ")],
)
def test_functions_that_are_not_right(
    builds: Builds, tmp_path: Path, function: str, reason: str
) -> None:
    """What cannot be captured, or gives something else in a fresh process, is left out with the
    reason; all else is published as ever."""
    store = tmp_path / "store"
    found = built(builds, function, store)
    assert (found.verdict, found.functions, found.aot_s) == (Verdict.WARM, 0, None)
    assert any(text.startswith(reason) for text in found.aot_reasons), found.aot_reasons
    assert keys(store, found.address.name)
    assert not keys(store, found.address.name, "aot/")


def test_what_is_compiled_beside_the_model(builds: Builds, tmp_path: Path) -> None:
    """A function that the calls compile is none of the model's: the model's calls are made by its
    functions, and the other graph comes from the directories."""
    store = tmp_path / "store"
    found = built(builds, "beside", store)
    assert (found.verdict, found.functions) == (Verdict.WARM, 1), found.aot_reasons
    report, apart = served(builds, "beside", store)
    assert (report["verdict"], report["tier"]) == ("warm", "aot")
    assert (report["counts"]["aot_hits"], report["counts"]["aot_misses"]) == (1, 0)
    assert (report["counts"]["graphs"], report["counts"]["graph_misses"]) == (1, 0)
    assert apart == pytest.approx(0, abs=1e-5)
