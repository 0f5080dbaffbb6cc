"""tccache bench: what is asked for, what is printed, and the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cachesvc

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

from known_benches import arm, bench

Command = Callable[..., Any]


class _Measured:
    """Takes the place of `cachesvc.bench`, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.found = bench()
        self.asked: dict[str, Any] = {}

    def __call__(self, target: str, **asked: Any) -> cachesvc.Bench:
        self.asked = {"target": target, **asked}
        return self.found


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> _Measured:
    """A bench of seconds that are known, without a process."""
    made = _Measured()
    monkeypatch.setattr(cachesvc, "bench", made, raising=False)
    return made


def test_the_table(tccache: Command, measured: _Measured) -> None:
    """Medians with their spread, both boundaries, verdicts, the calls from which it pays."""
    ran = tccache("bench", "demo:gpt")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "demo:gpt through a temporary local store; 3 samples per arm, medians"
    assert lines[2] == "default: a bundle of 1.0 kB"
    (warm,) = [line for line in lines if line.startswith("warm ")]
    for cell in ("2.10 s (2.00 to 2.20)", "7.10 s", "500.00 ms", "128.0 tokens", "100.0 MB", " 5"):
        assert cell in warm
    assert lines[-1] == (
        "  warm over cold: first call 19.1 times faster, process to result 6.4 times"
    )
    assert ran.err == ""


def test_json(tccache: Command, measured: _Measured) -> None:
    """One object on stdout; it says how to make the same again."""
    ran = tccache("bench", "demo:gpt", "--json")
    assert ran.json["schema"] == "tccache.bench/1"
    assert ran.json["arms"]["warm"]["verdict"] == "warm"
    assert ran.json["arms"]["warm"]["first_call_s"]["median"] == 2.1
    assert "baseline" not in ran.json
    assert ran.json["command"].startswith("tccache")


def test_what_is_asked_for(tccache: Command, measured: _Measured) -> None:
    """Nothing but the defaults."""
    tccache("bench", "demo:gpt")
    asked = measured.asked
    assert asked["variants"] == (cachesvc.Variant(),)
    assert asked["options"] == cachesvc.WorkloadOptions()
    assert (asked["runs"], asked["calls"]) == (3, 20)
    assert asked["arms"] == ("eager", "cold", "warm", "local", "megacache", "aot")


def test_variants(tccache: Command, measured: _Measured) -> None:
    """Every mode and every set of options, whole and by regions, static and dynamic."""
    tccache(
        *("bench", "demo:gpt", "--modes", "default, max-autotune", "--regions", "--dynamic"),
        *("--options", "max_autotune=true,shape_padding=false", "--options", "size_asserts=x"),
    )
    labels = [variant.label for variant in measured.asked["variants"]]
    ways = ("default", "max-autotune", "max_autotune=true,shape_padding=false", 'size_asserts="x"')
    each = ("", "+regions", "+dynamic", "+regions+dynamic")
    assert labels == [f"{way}{more}" for way in ways for more in each]


def test_options_as_json(tccache: Command, measured: _Measured) -> None:
    """For values that hold commas, and lists."""
    given = {"max_autotune_gemm_backends": "ATEN,TRITON", "nested": [1, 2]}
    tccache("bench", "demo:gpt", "--options", json.dumps(given))
    (variant,) = measured.asked["variants"]
    assert dict(variant.options) == given


def test_options_of_the_workload(tccache: Command, measured: _Measured) -> None:
    """Size, lengths and training are its function's to read; options alone are no default mode."""
    tccache(
        *("bench", "demo:gpt", "--size", "tiny", "--shapes", "16,32", "--train"),
        *("--options", "max_autotune=true", "--arms", "warm,local", "--runs", "5", "--calls", "7"),
    )
    asked = measured.asked
    assert asked["options"] == cachesvc.WorkloadOptions("tiny", (16, 32), train=True)
    assert [variant.label for variant in asked["variants"]] == ["max_autotune=true"]
    assert (asked["arms"], asked["runs"], asked["calls"]) == (("warm", "local"), 5, 7)


def test_variables(tccache: Command, measured: _Measured) -> None:
    """Every flag has one, lists too."""
    tccache("bench", "demo:gpt", TCCACHE_BENCH_MODES="max-autotune", TCCACHE_BENCH_SHAPES="1,2")
    assert [variant.label for variant in measured.asked["variants"]] == ["max-autotune"]
    assert measured.asked["options"].shapes == (1, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--modes", "fast"),
        ("--modes", "default,default"),
        ("--arms", "hot"),
        ("--shapes", "0"),
        ("--shapes", "a"),
        ("--options", "max_autotune"),
        ("--options", "=1"),
        ("--options", "{not json"),
        ("--margin", "1"),
        ("--runs", "0"),
        ("--baseline", "nowhere.json"),
        ("--html", "nowhere/page.html"),
    ],
)
def test_wrong_arguments(tccache: Command, wrong: tuple[str, str]) -> None:
    """One sentence and exit 2, before anything is measured."""
    ran = tccache("bench", "demo:gpt", *wrong)
    assert (ran.code, ran.is_one_error) == (2, True), ran.err


def test_a_failure_is_told(tccache: Command, measured: _Measured) -> None:
    """What was measured is printed, what was not is named, and the exit code says so."""
    failure = cachesvc.Failure("default", "local", "it was killed\n  there")
    measured.found = replace(measured.found, failures=(failure,))
    ran = tccache("bench", "demo:gpt")
    assert ran.code == 1
    assert "warm" in ran.out
    assert "not measured: default, local: it was killed there" in ran.out
    assert ran.err == ""
    told = tccache("bench", "demo:gpt", "--json")
    assert told.json["failures"][0]["arm"] == "local"
    assert told.err == "warning: default, local: it was killed there\n"


def test_what_figures_do_not_say_by_themselves(tccache: Command, measured: _Measured) -> None:
    """Fewer samples than asked for, and outputs that are not eager's."""
    (trial,) = measured.found.trials
    odd = replace(trial.arms[2].samples[0], differences=("first", "second"))
    arms = (*trial.arms[:2], replace(trial.arms[2], samples=(odd,)))
    measured.found = bench(replace(trial, arms=arms))
    lines = tccache("bench", "demo:gpt").out.splitlines()
    assert "  warm: 1 sample of 3" in lines
    assert "  warm: the output is not eager's: first; and 1 more" in lines


def test_the_command_that_makes_it_again(
    tccache: Command, measured: _Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variables that counted, and no password of the store."""
    given = "memory://user:secret@host/x"
    measured.found = replace(measured.found, store="memory://host/x")
    monkeypatch.setattr(sys, "argv", ["tccache", "bench", "demo:gpt", "--store", given])
    told = tccache("bench", "demo:gpt", "--store", given, "--json", TCCACHE_BENCH_SHAPES="1,2")
    assert told.json["command"] == (
        "TCCACHE_BENCH_SHAPES=1,2 tccache bench demo:gpt --store memory://host/x"
    )
    assert "secret" not in told.out


def test_an_interrupt_is_told(tccache: Command, measured: _Measured) -> None:
    """The report of what was measured, and the exit code of an interrupt."""
    measured.found = replace(measured.found, interrupted=True)
    ran = tccache("bench", "demo:gpt")
    assert ran.code == 130
    assert "interrupted: fewer samples than asked for" in ran.out
    assert "2.10 s" in ran.out
    assert tccache("bench", "demo:gpt", "--json").json["interrupted"] is True


def test_the_gate(tccache: Command, measured: _Measured) -> None:
    """The same run passes, one with a slower warm arm fails, a wider margin lets it pass."""
    Path("before.json").write_text(tccache("bench", "demo:gpt", "--json").out)
    line = ("bench", "demo:gpt", "--baseline", "before.json")
    same = tccache(*line)
    assert same.code == 0
    assert "no regression: 6 ratios within 25% of the baseline's" in same.out
    measured.found = bench(warm=4.2)
    slower = tccache(*line)
    assert slower.code == 1
    assert "regression: default: cold over warm, first call: 19.10 -> 9.33" in slower.out
    assert tccache(*line, "--margin", "0.6").code == 0
    told = tccache(*line, "--json").json["baseline"]
    assert (told["ok"], told["margin"]) == (False, 0.25)


def test_a_baseline_of_another_target(tccache: Command, measured: _Measured) -> None:
    """Is refused before anything is measured."""
    Path("before.json").write_text(tccache("bench", "demo:gpt", "--json").out)
    measured.asked = {}
    ran = tccache("bench", "demo:mlp", "--baseline", "before.json")
    assert (ran.code, ran.is_one_error) == (2, True)
    assert measured.asked == {}


def test_a_page(tccache: Command, measured: _Measured) -> None:
    """Beside the result, in the file that was named."""
    ran = tccache("bench", "demo:gpt", "--html", "page.html", "--json")
    assert ran.json["target"] == "demo:gpt"
    assert "demo:gpt" in Path("page.html").read_text()


def test_arms_without_steady_calls(tccache: Command, measured: _Measured) -> None:
    """Cells that are not known stay empty."""
    eager = arm("eager", 1.0)
    bare = tuple(replace(sample, calls=(), peak_bytes=None) for sample in eager.samples)
    trial = cachesvc.Trial(cachesvc.Variant(), (replace(eager, samples=bare),))
    measured.found = bench(trial)
    ran = tccache("bench", "demo:gpt")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].rstrip().endswith("eager    0         0")


@pytest.mark.slow
@pytest.mark.xdist_group("compile")
def test_for_real(child: Command) -> None:
    """The command that shows it: a small workload, all arms, a page; then the gate on the same."""
    line = ("bench", "demo:mlp", "--size", "tiny", "--runs", "1", "--json")
    first = child(*line, "--html", "page.html", timeout_s=280)
    assert first.code == 0, first.err
    verdicts = {name: told["verdict"] for name, told in json.loads(first.out)["arms"].items()}
    assert verdicts.pop("local") in ("warm", "partial")
    assert verdicts.pop("megacache") in ("warm", "partial")
    assert verdicts == {"eager": "eager", "cold": "cold", "warm": "warm", "aot": "warm"}
    assert "<svg" in Path("page.html").read_text()
