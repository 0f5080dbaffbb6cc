"""Which units a process has compiled or used: these are published, what else lies there is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fresh_processes import FreshProcesses

from cachesvc.runtime.used import used_units
from cachesvc.runtime.watch import seen

pytestmark = pytest.mark.xdist_group("runtime")

SCRIPT = """
from pathlib import Path
from cachesvc.local.layout import unit_key
from cachesvc.local.places import under
from cachesvc.local.damage import files_of
from cachesvc.runtime.megacache import capture
from cachesvc.runtime.used import used_units
from cachesvc.runtime.watch import watch

root = Path(given["root"])
watch()

def used():
    return sorted(used_units(capture(), root / "inductor"))

def lying():
    return sorted({unit_key(path.split("/")) for path, _ in files_of(under(root))})

result = [used()]
with torch.no_grad():
    for model, shape in ((Fused, (2, 4)), (Plain, (2, 4)))[: given["models"]]:
        torch.compile(model())(ones(*shape))
result += [used(), lying()]
"""


@pytest.fixture(scope="module")
def told(fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a process that compiled two models tells, and one after it that used one of them."""
    root = tmp_path_factory.mktemp("used")
    env = {"TORCHINDUCTOR_CACHE_DIR": str(root / "inductor")}
    return [fresh.run(SCRIPT, given={"root": root, "models": n}, env=env) for n in (2, 1)]


def keyed(units: list[str]) -> set[str]:
    return {u for u in units if u.startswith(("inductor/fxgraph/", "inductor/aotautograd/"))}


def test_nothing_at_first(told: Any) -> None:
    """A process that has compiled nothing has used nothing, whatever lies in its directory."""
    assert [before for before, _, _ in told] == [[], []]


def test_all_that_was_compiled(told: Any) -> None:
    """Graphs of both layers, generated modules, and the source with its library."""
    (_, used, lying), _ = told
    assert len(keyed(used)) == 4
    assert set(lying) <= set(used)


def test_only_what_was_used(told: Any) -> None:
    """Found in the caches instead of compiled, it counts as well; the other model's does not."""
    (_, everything, lying), (_, used, _) = told
    assert len(keyed(used)) == 2
    assert set(used) & set(lying) < set(lying)
    assert set(used) <= set(everything)
    left = set(lying) - set(used)
    assert len(keyed(sorted(left))) == 2


def test_kernels_that_a_cache_entry_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of their directory."""
    monkeypatch.setattr(seen, "emitted", {"KEY"})
    monkeypatch.setattr(seen, "files", set())
    assert "triton/KEY" in used_units([], Path("/nowhere"))


def test_sources_elsewhere_are_not_of_this_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have had another directory before."""
    monkeypatch.setattr(seen, "emitted", set())
    monkeypatch.setattr(seen, "files", {"/here/inductor/ab/cab.main.cpp", "/there/cd/ccd.main.cpp"})
    assert used_units([], Path("/here/inductor")) == {"inductor/ab/cab"}
