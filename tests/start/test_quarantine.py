"""Units that fail are set aside: the same start goes on, and a restart does not fall into it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")

AGAIN = "result = shown(start(torch.compile(Fused()), [ones()]))"


def one(folder: Path, pattern: str) -> Path:
    (file,) = folder.rglob(pattern)
    return file


def library(home: Path) -> Path:
    return one(home / "live", "*.main.so")


def test_a_file_damaged_after_seeding_is_brought_again(
    starts: Starts, fused: Published, tmp_path: Path
) -> None:
    """Emptied, as by a full disk: the next start heals it, is warm, and says so."""
    how: dict[str, Any] = {"store": fused.store, "label": "fused", "home": tmp_path / "home"}
    assert starts.run(AGAIN, **how)["verdict"] == "warm"
    library(tmp_path / "home").write_bytes(b"")
    report = starts.run(AGAIN, **how)
    assert report["verdict"] == "warm"
    assert report["transfer"]["repaired"] == 1
    assert "1 units were damaged on this disk and brought again" in report["notes"]
    assert starts.run(AGAIN, **how)["notes"] == []


def test_a_file_of_this_machine_that_nobody_can_use(
    starts: Starts, fused: Published, tmp_path: Path
) -> None:
    """Made here and cut short, in no bundle: the first call fails on it, and is made again."""
    home = tmp_path / "home"
    shutil.copytree(fused.home, home)
    library(home).write_bytes(b"")
    how: dict[str, Any] = {"store": tmp_path / "store", "label": "fused", "home": home}
    report = starts.run(AGAIN, **how)
    assert report["first_call_s"] is not None
    assert report["verdict"] == "partial"  # the graph hit, its library was built again
    assert report["counts"]["cpp_builds"] > 0
    (aside,) = report["set_aside"]
    assert aside.startswith("inductor/")
    assert "set aside, inductor/" in report["text"]
    again = starts.run(AGAIN, **how)
    assert (again["set_aside"], again["counts"]["cpp_builds"]) == ([], 0)


@pytest.fixture(scope="module")
def poisoned(
    starts: Starts, fused: Published, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A store whose bundle has a wrapper that raises when it is imported; and its stem."""
    folder = tmp_path_factory.mktemp("poison")
    shutil.copytree(fused.home, folder / "home")
    wrapper = one(folder / "home" / "live", "*.py")
    wrapper.write_text("raise RuntimeError('poison')\n")
    starts.run(
        """
model = torch.compile(Fused())
cachesvc.push(model, store=given["store"], label="fused", inductor_dir=given["inductor"])
""",
        store=folder / "store",
        label="fused",
        given={"inductor": str(wrapper.parents[1])},
    )
    return folder / "store", wrapper.stem


def test_a_unit_that_raises_is_set_aside_and_the_start_goes_on(
    starts: Starts, poisoned: tuple[Path, str], tmp_path: Path
) -> None:
    """Only that unit, with the reason; the restart leaves it out, and its first call is right."""
    store, stem = poisoned
    how: dict[str, Any] = {"store": store, "label": "fused", "home": tmp_path / "home"}
    first = starts.run(AGAIN, **how)
    (aside,) = first["set_aside"]
    assert stem in aside
    assert "poison" in aside
    assert first["first_call_s"] is not None
    assert first["verdict"] in ("partial", "warm")
    second = starts.run(AGAIN, **how)
    assert second["set_aside"] == [aside]
    assert second["verdict"] == "warm"
    listed = starts.run(
        "result = [str(item) for item in cachesvc.list_set_aside()]", home=tmp_path / "home"
    )
    assert listed == [aside]


def test_a_unit_of_this_machine_that_raises(
    starts: Starts, poisoned: tuple[Path, str], tmp_path: Path
) -> None:
    """In no bundle, and not to be seen to be broken: set aside as well, and told."""
    _, stem = poisoned
    home = tmp_path / "home"
    shutil.copytree(poisoned[0].parent / "home", home)
    how: dict[str, Any] = {"store": tmp_path / "store", "label": "fused", "home": home}
    first = starts.run(AGAIN, **how)
    assert first["first_call_s"] is not None
    assert any(stem in text and "poison" in text for text in first["set_aside"])
    assert any("a call failed and was made again" in note for note in first["notes"])
    again = starts.run(AGAIN, **how)
    assert again["set_aside"] == []
    assert not any("failed" in note for note in again["notes"])


def test_a_passing_failure_accuses_nobody(starts: Starts, fused: Published, tmp_path: Path) -> None:
    """A call that works when it is made once more: it is told, and nothing is set aside."""
    report = starts.run(
        """
model, failed = torch.compile(Fused()), []

def call():
    if not failed:
        failed.append(1)
        raise RuntimeError("for once")
    return model(ones())

result = shown(start(model, calls=[call]))
""",
        store=fused.store,
        label="fused",
        home=tmp_path / "home",
    )
    assert report["set_aside"] == []
    assert report["verdict"] == "warm"
    assert any("RuntimeError: for once" in note for note in report["notes"])


def test_memory_that_runs_out_is_no_units_fault(
    starts: Starts, fused: Published, tmp_path: Path
) -> None:
    """However often it does: the call fails, and the bundle stays."""
    report = starts.run(
        """
model = torch.compile(Fused())

def call():
    if not torch.compiler.is_compiling() and torch._dynamo.eval_frame._stance.stance == "default":
        raise MemoryError("no more")
    return model(ones())

result = shown(start(model, calls=[call]))
""",
        store=fused.store,
        label="fused",
        home=tmp_path / "home",
    )
    assert report["set_aside"] == []
    assert any("an example call failed: MemoryError" in note for note in report["notes"])
    again = starts.run(AGAIN, store=fused.store, label="fused", home=tmp_path / "home")
    assert (again["verdict"], again["set_aside"]) == ("warm", [])


def test_what_is_under_suspicion_is_not_published(
    starts: Starts, poisoned: tuple[Path, str], tmp_path: Path
) -> None:
    """A start that had to set a unit aside publishes what it compiled, and not that unit."""
    store, stem = poisoned
    mine = tmp_path / "mine"
    shutil.copytree(store, mine)
    keys = starts.run(
        """
model = torch.compile(Fused())
report = start(model, [ones()], publish=True)
assert report.suspects, str(report)
if report.publishing:
    report.publishing.wait()
from cachesvc.start.settings import open_repository
repository = open_repository(given["store"], None)
names = [s for b in repository.bundles("fused") for s in repository.read(b).segments]
result = [
    [unit.key for unit in segment.manifest.units if unit.origin.segment in (None, segment.name)]
    for segment in names
]
""",
        store=mine,
        label="fused",
        home=tmp_path / "home",
    )
    later = [unit for units in keys[1:] for unit in units]
    assert not [unit for unit in later if stem in unit]


def test_what_the_caller_is_at_fault_for_sets_nothing_aside(
    starts: Starts, fused: Published, tmp_path: Path
) -> None:
    """A call that fails as it was written, too, fails; the bundle stays and the next start is
    warm."""
    how: dict[str, Any] = {"store": fused.store, "label": "fused", "home": tmp_path / "home"}
    failed = starts.run("result = shown(start(torch.compile(Fused()), [ones(2, 5)]))", **how)
    assert failed["set_aside"] == []
    assert any("an example call failed" in note for note in failed["notes"])
    assert starts.run(AGAIN, **how)["verdict"] == "warm"


DIE = """
import signal
model = torch.compile(Fused())

def die():
    os.kill(os.getpid(), signal.SIGKILL)

child = os.fork()
if child == 0:
    start(model, calls=[die])
    os._exit(3)
result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_starts_that_die(starts: Starts, fused: Published, tmp_path: Path) -> None:
    """Once: the files are read again. Twice in a row: what was brought is set aside. Three times:
    it was not at fault and comes back."""
    how: dict[str, Any] = {"store": fused.store, "label": "fused", "home": tmp_path / "home"}
    told = []
    for _ in range(4):
        assert starts.run(DIE, **how) == -9
        told.append(starts.run("result = [str(item) for item in cachesvc.list_set_aside()]", **how))
    assert [bool(units) for units in told] == [False, False, True, False]
    assert all("two starts in a row died in their first call" in unit for unit in told[2])
    assert starts.run(AGAIN, **how)["verdict"] == "warm"
