"""`tccache doctor` as its user meets it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc import Diagnosis, Finding

Command = Callable[..., Any]

SICK = Diagnosis(
    "app:workload",
    (Finding("graph break", "disease", "it prints", "app.py:3", "remove it"),),
)
HINTED = Diagnosis(None, (Finding("other cache", "hint", "7 files", "/vllm"),))

APP = """
import cachesvc, torch

class Model(torch.nn.Module):
    def forward(self, x):
        y = x @ x
        print("speaking")
        return y @ x

def workload():
    return cachesvc.Workload("m", Model(), ((torch.ones(2, 2),),))
"""


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[Diagnosis], list[Any]]:
    """Makes doctor come to this; what it was asked."""

    def use(diagnosis: Diagnosis) -> list[Any]:
        asked: list[Any] = []

        def doctor(target: str | None, *, trace: str | None, progress: Any) -> Diagnosis:
            asked.append((target, trace))
            return diagnosis

        monkeypatch.setattr(cachesvc, "doctor", doctor, raising=False)
        return asked

    return use


@pytest.mark.parametrize(
    ("diagnosis", "strict", "code"),
    [(SICK, False, 0), (SICK, True, 1), (HINTED, True, 0), (Diagnosis(None), True, 0)],
)
def test_exit_code(
    tccache: Command, found: Any, diagnosis: Diagnosis, strict: bool, code: int
) -> None:
    """0 with an answer; with --strict 1 for a disease, and never for a hint."""
    found(diagnosis)
    ran = tccache("doctor", *(["--strict"] if strict else []))
    assert (ran.code, ran.err) == (code, "")
    assert ran.out == f"{diagnosis}\n"
    assert tccache("doctor", TCCACHE_DOCTOR_STRICT=str(int(strict))).code == code


def test_json(tccache: Command, found: Any) -> None:
    """One object; its fields are only ever added."""
    asked = found(SICK)
    ran = tccache("doctor", "app:workload", "--trace", "traces", "--json")
    assert set(ran.json) == {"schema", "target", "healthy", "findings", "facts"}
    assert ran.json["schema"] == "tccache.doctor/1"
    assert ran.json["findings"][0]["cure"] == "remove it"
    assert asked == [("app:workload", "traces")]


def test_this_machine(tccache: Command) -> None:
    """With what is really here: the flag that was set is named, and the live directory told."""
    ran = tccache("doctor", "--json", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    assert (ran.code, ran.err) == (0, "")
    flags = [item["where"] for item in ran.json["findings"] if item["kind"] == "flag"]
    assert flags == ["TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"]
    home = os.environ["TCCACHE_HOME"]
    (directory,) = (
        item
        for item in ran.json["facts"]["machine"]["directories"]
        if item["chosen_by"] == "TCCACHE_HOME"
    )
    assert directory["path"] == home


def test_what_is_no_target(tccache: Command) -> None:
    """Wrong usage, in one line."""
    ran = tccache("doctor", "nothing")
    assert (ran.code, ran.is_one_error) == (2, True)
    assert "is no target: write demo:NAME" in ran.err


@pytest.mark.slow
def test_a_target_in_the_working_directory(child: Command, tmp_path: Path) -> None:
    """It is found there; what it prints leaves stdout to the result; the trace is kept."""
    (tmp_path / "app.py").write_text(APP)
    env = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    line = ("doctor", "app:workload", "--trace", "traces", "--strict", "-v")
    ran = child(*line, env=env, timeout_s=240)
    assert ran.code == 1, ran.err
    assert "  disease, graph break at app.py:7: " in ran.out
    assert "cold start of app:workload\nlocal start of app:workload\n" in ran.err
    assert "speaking" not in ran.out
    assert sorted(item.name for item in (tmp_path / "traces").iterdir()) == ["cold", "local"]
    assert all(any(item.iterdir()) for item in (tmp_path / "traces").iterdir())
