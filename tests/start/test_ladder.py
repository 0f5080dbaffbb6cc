"""benchmarks/ladder.py: the rungs of a bench in words that others read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from samples import SECONDS, Samples, without_processes

from benchmarks import ladder
from cachesvc.core.errors import TccacheError


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> Samples:
    return without_processes(monkeypatch)


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["ladder", "--workloads", "weather:small", *arguments])
    ladder.main()


def test_the_rungs_as_json(
    samples: Samples, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each workload and rung both boundaries with median, least, greatest and all samples, in
    the seconds that were measured; and what was aimed at, from medians of the same run."""
    ran(monkeypatch, "--runs", "2", "--json")
    told = json.loads(capsys.readouterr().out)
    (found,) = told["workloads"].values()
    arms = told["workloads"]["weather:small"]["arms"]
    assert list(arms) == ["eager", "cold", "mega-cache", "directories", "aot"]
    for rung, arm in ladder.ARMS.items():
        first, startup = arms[rung]["first_call_s"], arms[rung]["startup_s"]
        seconds = SECONDS[arm]
        assert first == {
            "median": seconds,
            "min": seconds,
            "max": seconds,
            "samples": [seconds] * 2,
        }
        assert startup["samples"] == [seconds + 5] * 2
    assert found["targets"] == {
        "first_call_limit_s": 2.0,
        "first_call_s": 2.0,
        "first_call_met": True,
        "faster_than_cold": 20.0,
        "faster_than_cold_met": False,
    }
    assert "local" not in samples.arms


def test_a_rung_that_failed(
    samples: Samples, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is missing, why is on stderr, and nothing is said of targets; the others are told."""
    samples.raising["aot", 0] = TccacheError("nothing was captured")
    ran(monkeypatch, "--runs", "1")
    told = capsys.readouterr()
    assert "weather:small: default, aot: nothing was captured" in told.err
    assert "  cold         first call  40.000 s (40.000 to 40.000), process  45.000 s" in told.out
    assert "aot" not in told.out
