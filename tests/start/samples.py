"""Outcomes of samples made up for tests: what the process of a sample tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.bench import Composition
from cachesvc.start import bench, sampler
from cachesvc.start.sample import SampleSpec

VERDICTS = {"eager": "eager", "cold": "cold", "megacache": "partial"}
SECONDS = {"eager": 1.0, "cold": 40.0, "warm": 4.0, "local": 5.0, "megacache": 20.0, "aot": 2.0}
UNIT = "aot/weather/call"


def capture(spec: SampleSpec, reasons: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a capturing process leaves and tells: one function, or the reasons why there is none."""
    folder = Path(spec.functions)
    folder.mkdir()
    if not reasons:
        file = folder / UNIT.removeprefix("aot/") / "function.json"
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    return {
        "name": "weather",
        "model": {"class": "Weather"},
        "context": {"threads": "2"},
        "units": [] if reasons else [UNIT],
        "reasons": list(reasons),
    }


def outcome(
    spec: SampleSpec, *, verdict: str | None = None, compiled: int = 0, past: int = 0
) -> dict[str, Any]:
    """What a sample of an arm tells, of seconds that are known; `past` are the calls that were made
    past its functions."""
    told = verdict or VERDICTS.get(spec.arm, "warm")
    seconds = SECONDS[spec.arm]
    found: dict[str, Any] = {
        "workload": "weather",
        "items": 8,
        "unit": "rows",
        "report": {"verdict": told, "counts": {"native_builds": 0, "aot_misses": past}},
        "summary": f"{told}: what it was",
        "compiled": compiled,
        "first_call_s": seconds,
        "startup_s": seconds + 5,
        "stages": [["import torch", 2.0], ["first call", seconds], ["second call", 0.5]],
        "difference": 0.0,
        "calls": [{"differences": []}],
        "series": [
            {"signature": "call", "seconds": s, "traced": 0, "compiled": 0, "reason": ""}
            for s in (seconds, 0.5, 0.25, 0.25)
        ],
        "round_length": 1,
        "peak_bytes": 1000,
        "device_peak_bytes": None,
    }
    if spec.arm == "cold":
        found["context"] = {"threads": "2"}
        found["notes"] = ["what was chosen"]
    if spec.publish:
        found["published"] = {"address": f"weather/{'0' * 64}/{'1' * 64}", "pack_bytes": 7}
    return found


class Samples:
    """Takes the place of `run_sample`, and keeps what was asked for.

    `crowd` is how many directories of samples there were at once, at most; `captures` are the
    processes between the arms that have captured functions, `reasons` why they found none.
    """

    def __init__(self, **verdicts: str) -> None:
        self.asked: list[tuple[str, SampleSpec, Path, Path | None]] = []
        self.verdicts = verdicts
        self.crowd = 0
        self.captures: list[tuple[SampleSpec, Path, Path | None]] = []
        self.reasons: tuple[str, ...] = ()
        self.past = 0
        self.raising: dict[tuple[str, int], BaseException] = {}

    def __call__(self, spec: SampleSpec, home: Path, caches: Path | None = None) -> dict[str, Any]:
        assert home.is_dir()
        if spec.arm == "capture":
            self.captures.append((spec, home, caches))
            return capture(spec, self.reasons)
        number = sum(arm == spec.arm for arm, *_ in self.asked)
        self.asked.append((spec.arm, spec, home, caches))
        self.crowd = max(self.crowd, sum(other.exists() for *_, other, _ in self.asked))
        if error := self.raising.get((spec.arm, number)):
            raise error
        past = self.past if spec.arm == "aot" else 0
        return outcome(spec, verdict=self.verdicts.get(spec.arm), past=past)

    @property
    def arms(self) -> list[str]:
        """The arms in the order in which they were made."""
        return [arm for arm, *_ in self.asked]


def without_processes(monkeypatch: pytest.MonkeyPatch) -> Samples:
    """Samples that a bench makes without processes; what was published is in no store."""
    made = Samples()
    monkeypatch.setattr(sampler, "run_sample", made)
    monkeypatch.setattr(
        bench._Measuring, "_composition", lambda *_: Composition("weather/m/e", 7, {})
    )
    return made
