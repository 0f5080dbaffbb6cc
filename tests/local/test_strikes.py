"""Starts that died in their first call are counted in a row, and only real deaths are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from cachesvc.core.errors import TccacheError
from cachesvc.local.strikes import Measure, begin_start, died_before, end_start, measure

BEGIN = """
import sys
from pathlib import Path
from cachesvc.local.strikes import begin_start
start = begin_start(Path(sys.argv[1]), sys.argv[2:])
print("begun", flush=True)
sys.stdin.read()
"""

ONE, TWO = ("a" * 64,), ("b" * 64,)


class Starts:
    """Real processes that are in their first call until they are killed."""

    def __init__(self, records: Path) -> None:
        self.records = records
        self._processes: list[subprocess.Popen[str]] = []

    def begin(self, segments: Collection[str]) -> None:
        command = [sys.executable, "-c", BEGIN, str(self.records), *segments]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        self._processes.append(process)

    def kill(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        self._processes.clear()

    def die(self, segments: Collection[str]) -> None:
        self.begin(segments)
        self.kill()


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    starts = Starts(tmp_path)
    yield starts
    starts.kill()


def left(records: Path) -> list[str]:
    return os.listdir(records / "starts")


def test_a_start_that_lives_is_no_death(starts: Starts) -> None:
    """Neither in its first call, nor after it, and it leaves no file."""
    start = begin_start(starts.records, ONE)
    assert died_before(starts.records, ONE) == 0
    starts.begin(ONE)
    assert died_before(starts.records, ONE) == 0
    end_start(start)
    assert len(left(starts.records)) == 1


def test_deaths_in_a_row_are_counted(starts: Starts) -> None:
    """For the segments that were used, with one file for all of them."""
    for deaths in range(4):
        assert died_before(starts.records, ONE) == deaths
        starts.die(ONE)
    assert died_before(starts.records, TWO) == died_before(starts.records, ()) == 0
    starts.die(ONE)
    assert len(left(starts.records)) <= 2
    assert died_before(starts.records, (*ONE, *TWO)) == 5


def test_ranks_that_die_together_are_one_death(starts: Starts) -> None:
    """An orchestrator that kills a node's four processes is not four times as suspicious."""
    for _ in range(3):
        starts.begin(ONE)
    starts.kill()
    assert died_before(starts.records, ONE) == 1


def test_a_start_that_lives_ends_the_row(starts: Starts) -> None:
    """What was killed before it did not die of the cache; other segments keep their count."""
    starts.die(ONE)
    starts.die(TWO)
    end_start(begin_start(starts.records, ONE))
    assert died_before(starts.records, ONE) == 0
    assert died_before(starts.records, TWO) == 1


@pytest.mark.parametrize("first", ["the one that dies", "the one that lives"])
def test_a_death_meanwhile_is_not_forgotten(starts: Starts, first: str) -> None:
    """Of two processes that start together one dies each time, whichever began before the other:
    the one that lives does not hide that from the next start, so a crash loop is counted."""
    for deaths in range(3):
        assert died_before(starts.records, ONE) == deaths
        if first == "the one that dies":
            starts.begin(ONE)
        start = begin_start(starts.records, ONE)
        if first == "the one that lives":
            starts.begin(ONE)
        starts.kill()
        end_start(start)
    assert died_before(starts.records, ONE) == 3
    assert len(left(starts.records)) == 1
    end_start(begin_start(starts.records, ONE))
    assert left(starts.records) == []


def test_starts_without_a_bundle_are_counted_too(starts: Starts) -> None:
    """What this machine compiled itself can kill as well."""
    starts.die(())
    assert died_before(starts.records, ()) == 1
    assert died_before(starts.records, ONE) == 0


def test_the_dead_of_many_bundles_do_not_pile_up(starts: Starts) -> None:
    """A few are remembered; files that are no record are removed."""
    folder = starts.records / "starts"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.json").write_text(f'{{"segments": ["{number}"], "deaths": 0}}')
    for number, text in enumerate(["", "[]", "{}", '{"segments": 7, "deaths": 0}']):
        (folder / f"bad{number}.json").write_text(text)
    end_start(begin_start(starts.records, ONE))
    assert len(left(starts.records)) == 16


def test_the_measures() -> None:
    """One death is looked into, two are held against the bundle, a third clears it."""
    assert [measure(deaths) for deaths in range(6)] == [
        *(Measure.TRUST, Measure.VERIFY, Measure.SET_ASIDE, Measure.RESTORE),
        *(Measure.TRUST, Measure.TRUST),
    ]


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    """The caller goes on without."""
    (tmp_path / "starts").write_text("a file")
    with pytest.raises(TccacheError):
        begin_start(tmp_path, ONE)
    assert died_before(tmp_path, ONE) == 0
