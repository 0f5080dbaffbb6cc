"""gc beside pushes and pulls: no reader fails, and nothing that was pushed is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachesvc.core.errors import IntegrityError, StoreError
from cachesvc.repository.repository import PackMissing
from cachesvc.store import contract

from . import busy

SOURCES = Path(contract.__file__).parents[2]
PROGRAM = Path(busy.__file__)


class Crowd:
    """Processes at one store, each doing one thing over and over."""

    def __init__(self, folder: Path, grace_s: float) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.grace_s = grace_s
        self._processes: list[subprocess.Popen[str]] = []

    def add(self, role: str, number: int) -> None:
        line = [sys.executable, PROGRAM, role, self.store, self.folder, number, self.grace_s]
        self._processes.append(
            subprocess.Popen(
                [*map(str, line)],
                stdout=subprocess.PIPE,
                text=True,
                env={"PYTHONPATH": str(SOURCES), "TMPDIR": str(self.folder)},
            )
        )

    def stop(self) -> Counter[str]:
        """Ends them all; what they did together. Fails if anything went wrong in any of them."""
        (self.folder / "stop").touch()
        done: Counter[str] = Counter()
        failures: list[str] = []
        for process in self._processes:
            out, _ = process.communicate(timeout=100)
            assert process.returncode == 0
            told = json.loads(out)
            done.update(told["done"])
            failures += told["failures"]
        assert not failures, f"{len(failures)} failures, first {failures[0]}"
        return done

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Callable[..., Crowd]]:
    made: list[Crowd] = []

    def make(grace_s: float, **roles: int) -> Crowd:
        made.append(Crowd(tmp_path, grace_s))
        for role, number in roles.items():
            for index in range(number):
                made[-1].add(role, index)
        return made[-1]

    yield make
    for item in made:
        item.kill()


def janitor(crowd: Crowd) -> busy.Worker:
    """A worker in this process."""
    return busy.Worker(str(crowd.store), str(crowd.folder), "0", str(crowd.grace_s))


def whole(crowd: Crowd) -> int:
    """Checks that all that was ever pushed is there; how many units that are."""
    worker = janitor(crowd)
    for worker.rounds in range(len(busy.ADDRESSES)):
        busy.pull(worker)
    assert worker.done["pulled"] == len(busy.ADDRESSES)
    return sum(len(busy.recorded(crowd.folder, address)) for address in busy.ADDRESSES)


@pytest.mark.parametrize(
    ("error", "seconds", "excused"),
    [
        (PackMissing, 3.0, True),
        (PackMissing, 2.0, False),
        (AssertionError, 3.0, False),
        (IntegrityError, 3.0, False),
        (StoreError, 3.0, False),
    ],
)
def test_what_is_excused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    seconds: float,
    excused: bool,
) -> None:
    """Of what goes wrong below: a pack that was deleted under who read for too long, nothing else,
    however long it took."""

    def fail(worker: busy.Worker) -> None:
        (worker.folder / "stop").touch()
        raise error("wrong")

    times = iter([0.0, seconds])
    monkeypatch.setattr(busy, "monotonic", lambda: next(times))
    worker = busy.Worker(str(tmp_path / "store"), str(tmp_path), "0", "5.0")
    worker.work(fail)
    assert (worker.done["too slow"], len(worker.failures)) == ((1, 0) if excused else (0, 1))


def test_beside_pushes_and_pulls(crowd: Callable[..., Crowd]) -> None:
    """Until thirty objects were deleted, beside two pushers and two pullers."""
    here = crowd(1.0, push=2, pull=2)
    worker = janitor(here)
    while worker.done["deleted"] < 30:
        busy.gc(worker)
        worker.rounds += 1
    done = here.stop()
    assert done["pushed"] > 0
    assert done["pulled"] > 0
    assert worker.done["merged"] > 0
    assert whole(here) > 0


@pytest.mark.slow
def test_for_a_minute(crowd: Callable[..., Crowd]) -> None:
    """Eight pushers, eight pullers and two janitors for 60 s: hundreds of deletions, no failure,
    nothing lost."""
    here = crowd(5.0, push=8, pull=8, gc=1)
    worker = janitor(here)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        busy.gc(worker)
        worker.rounds += 1
    done = here.stop() + worker.done
    assert done["deleted"] > 200
    assert done["pushed"] > 50
    assert done["pulled"] > 50
    assert done["too slow"] < done["pulled"] / 10
    assert whole(here) > 0
