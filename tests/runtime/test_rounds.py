"""Rounds of calls: the same random numbers in every process, outputs kept, failures named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.runtime import rounds
from cachesvc.runtime.outputs import tolerance
from cachesvc.runtime.rounds import Made, Round, load_seeded, random_paths
from cachesvc.runtime.workloads import Workload

pytestmark = pytest.mark.xdist_group("runtime")

TARGETS = """
import random, torch
from cachesvc import Workload

made = []

def noisy():
    made.append(1)
    model = torch.nn.Linear(4, 4)
    batch = torch.randn(2, 4)
    def plain(): return model(batch)
    def drawn(): return {"kept": model(batch), "noise": torch.rand(3), "n": random.random()}
    return Workload("noisy", model, [plain, drawn, plain])

def once():
    if made:
        raise RuntimeError("only once")
    return noisy()
"""


@pytest.fixture(autouse=True)
def _targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rounds_targets.py").write_text(TARGETS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "rounds_targets", raising=False)


def eager(workload: Workload, **options: Any) -> tuple[Made, ...]:
    made = Round(workload, compiled=False, **options)
    for call in made.calls:
        call()
    return made.finish()


def test_rounds_are_equal() -> None:
    """Weights, inputs and what a call draws are the same in each round of a target."""
    first, second = (eager(load_seeded("rounds_targets:noisy")) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert str(a.output) == str(b.output)
    assert [call.drew for call in first] == [False, True, False]
    assert first[0].signature.endswith("plain")


def test_what_is_random_is_found() -> None:
    """Values that another seed changes are named by their paths, and no others."""
    made = eager(load_seeded("rounds_targets:noisy"))
    assert random_paths("rounds_targets:noisy", made, tolerance()) == (
        (),
        ("output['noise']", "output['n']"),
        (),
    )


def test_a_target_that_can_be_made_only_once() -> None:
    """From the first call that draws random numbers on, every value may depend on them."""
    made = eager(load_seeded("rounds_targets:once"))
    first, *others = random_paths("rounds_targets:once", made, tolerance())
    assert first == ()
    assert others == [("output['kept']", "output['noise']", "output['n']"), ("output",)]


def test_a_target_without_random_numbers_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a second round that would show nothing."""
    monkeypatch.setattr(rounds, "load_seeded", None)
    model = torch.nn.Linear(4, 4)
    made = eager(Workload("w", model, [(torch.ones(1, 4),), {"input": torch.ones(2, 4)}]))
    assert random_paths("no:target", made, tolerance()) == ((), ())


def test_digests_are_taken_before_the_call() -> None:
    """A training step that changes the weights is recorded with those that it started from; a
    callable does not say what its inputs are."""
    model = torch.nn.Linear(2, 2)

    def step() -> Any:
        with torch.no_grad():
            model.weight.add_(1)
        return model(torch.ones(1, 2))

    first, second, third = eager(
        Workload("w", model, [step, step, (torch.ones(1, 2),)]), traced=True
    )
    assert len({first.weights, second.weights, third.weights}) == 3
    assert (first.inputs, second.inputs) == ("", "")
    assert third.record().is_comparable
    assert not first.record().is_comparable


def test_an_output_is_kept_before_it_is_written_over() -> None:
    """A model that gives the same tensor each time with other values: each call has its own."""
    state = torch.zeros(1)
    made = eager(Workload("w", state.add_, [(1,), (1,)]))
    assert [float(call.output[0][1]) for call in made] == [1, 2]


def test_a_call_that_fails() -> None:
    """It is named by number and signature, with what it raised and where; the calls after it that
    nobody made are not named instead. One that was made again and succeeded has not failed."""
    attempts: list[int] = []

    def weak() -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not\nyet")
        return 1

    made = Round(Workload("w", None, [lambda: 1, weak]), compiled=False)
    first, second = made.calls
    first()
    with pytest.raises(ValueError, match="yet"):
        second()
    with pytest.raises(TccacheError, match=r"call 2 of 2, call .*weak: ValueError: not yet \("):
        made.finish()
    second()
    assert len(made.finish()) == 2


def test_saved_and_loaded(tmp_path: Path) -> None:
    """Whole outputs of every kind reach another process."""
    values = {"a": torch.ones(2, dtype=torch.bfloat16), "b": [1, 2.5, True, "text"]}
    made = eager(Workload("w", None, [lambda: values]))
    rounds.save(tmp_path / "file", made, [["output['a']"]])
    (loaded,) = rounds.load(tmp_path / "file")
    assert str(loaded["output"]) == str(made[0].output)
    assert loaded["random"] == ["output['a']"]


@pytest.mark.parametrize(
    ("model", "calls", "reason"),
    [
        (torch.nn.Linear(1, 1), [], "needs one call at least"),
        (torch.nn.Linear(1, 1), {"x": 1}, "are a sequence"),
        (torch.nn.Linear(1, 1), torch.ones(1), "are a sequence"),
        ([torch.nn.Linear(1, 1)] * 2, [(torch.ones(1),)], "which of several models"),
        ({"a": torch.nn.Linear(1, 1)}, [{"x": 1}], "which of several models"),
    ],
)
def test_a_workload_that_cannot_be(model: Any, calls: Any, reason: str) -> None:
    """What a workload's calls cannot mean is said where it is made."""
    with pytest.raises(UsageError, match=reason):
        Workload("w", model, calls)
