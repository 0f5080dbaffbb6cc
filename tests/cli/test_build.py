"""The build for real, as its user meets it; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc import Built, BuiltCall, IntegrityError, UsageError, Verdict
from cachesvc.core.address import Address

Command = Callable[..., Any]

WORKLOAD = """
import cachesvc, torch

def build():
    return cachesvc.Workload("tiny", torch.nn.Linear(4, 4), calls=[(torch.ones(2, 4),)])

def fails():
    raise KeyError("weights")
"""

BUILT = Built(
    target="m:f",
    address=Address("m", "a" * 64, "b" * 64),
    verdict=Verdict.WARM,
    cold_s=20.0,
    warm_s=1.25,
    calls=(
        BuiltCall("(float32[2, 4])", 0.1, 19.0, 1.0, 2.5e-7),
        BuiltCall("call step", 0.1, 1.0, 0.5, None, ("output",)),
    ),
    verified=("outputs of 2 calls equal to eager",),
    units=3,
    files=4,
    bytes=5000,
    pack_bytes=2000,
    segment="c" * 64,
    added=2,
    reasons=("a graph is not cached",),
    warnings=("a warning",),
)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `cachesvc.build` was called with; it answers with BUILT, changed by `answer`."""
    seen: dict[str, Any] = {}

    def build(target: str, **options: Any) -> Built:
        seen.update(options, target=target)
        answer = seen.get("answer", BUILT)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(cachesvc, "build", build, raising=False)
    return seen


def test_flags(tccache: Command, given: dict[str, Any]) -> None:
    """Every flag reaches the library."""
    arguments = ("--store", "s", "--trust", "/k.pub", "--label", "l", "--salt", "x", "--tag", "a")
    signed = ("--sign-with", "/k", "--revoked", "/gone", "--max-age", "2h")
    more = ("--tolerance", "0.01", "--dry-run", "--slim", "--tier", "no-aot")
    ran = tccache("build", "m:f", *arguments, "--tag", "b", *more, *signed)
    assert ran.code == 0, ran.err
    given.pop("progress")
    assert given == {
        "target": "m:f",
        "store": "s",
        "trust": cachesvc.Access(("/k.pub",), ("/k",), 7200.0, ("/gone",)),
        "label": "l",
        "salt": "x",
        "tags": ("a", "b"),
        "tolerance": 0.01,
        "dry_run": True,
        "slim": True,
        "tier": "no-aot",
    }


def test_json(tccache: Command, given: dict[str, Any]) -> None:
    """One object with the verb's schema; its fields are an interface: they are only ever added."""
    ran = tccache("build", "m:f", "--store", "s", "--json")
    assert ran.code == 0
    assert ran.json["schema"] == "tccache.build/1"
    assert set(ran.json) == {
        *("schema", "target", "bundle", "address", "verdict", "cold_s", "warm_s", "calls"),
        *("verified", "reasons", "segment", "units", "added", "files", "bytes", "pack_bytes"),
        *("dry_run", "warnings", "functions", "aot_s", "aot_reasons"),
    }
    assert set(ran.json["calls"][0]) == {
        *("signature", "eager_s", "cold_s", "warm_s", "max_abs_difference", "random"),
    }
    assert ran.err == "warning: a warning\n"


def test_text(tccache: Command, given: dict[str, Any]) -> None:
    """Verdict and seconds first, then what was written, checked and found, then the calls."""
    lines = tccache("build", "m:f", "--store", "s").out.splitlines()
    assert lines[:4] == [
        "m/aaaaaaaaaaaa/bbbbbbbbbbbb: warm, first result 1.25 s (cold was 20.00 s)",
        "  added 2 of 3 units in 4 files, 5.0 kB; pack 2.0 kB, segment cccccccccccc",
        "  outputs of 2 calls equal to eager",
        "  a graph is not cached",
    ]
    assert lines[5].split() == ["call", "eager", "cold", "warm", "greatest", "difference"]
    assert lines[6].endswith("0.10 s  19.00 s  1.00 s  2.5e-07")
    assert lines[7].endswith("- (random)")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"functions": 2, "aot_s": 0.25},
            "2 functions compiled ahead of time, first result 0.25 s",
        ),
        ({"aot_reasons": ("f(): why",)}, "not ahead of time, f(): why"),
        ({"segment": None, "added": 0}, "nothing to add, the store has all of 3 units"),
        ({"segment": None, "dry_run": True}, "nothing is published in a dry run: 3 units"),
    ],
)
def test_what_is_told(
    tccache: Command, given: dict[str, Any], changes: dict[str, Any], line: str
) -> None:
    """What was compiled ahead of time or not is told; so are nothing to add, and a dry run."""
    fields = {name: getattr(BUILT, name) for name in BUILT.__slots__}
    given["answer"] = Built(**{**fields, **changes})
    assert line in tccache("build", "m:f", "--store", "s").out


@pytest.mark.parametrize(
    ("error", "code"), [(IntegrityError("outputs differ"), 4), (UsageError("no such target"), 2)]
)
def test_errors(tccache: Command, given: dict[str, Any], error: Exception, code: int) -> None:
    """Outputs that differ are wrong data, a target that does not load is wrong usage."""
    given["answer"] = error
    ran = tccache("build", "m:f", "--store", "s")
    assert (ran.code, ran.err) == (code, f"error: {error}\n")
    assert ran.is_one_error


def test_a_target_that_fails(child: Command) -> None:
    """The reason and its place, in one line; torch is not asked for anything in this process."""
    Path("tiny.py").write_text(WORKLOAD)
    ran = child("build", "tiny:fails", "--store", "store")
    assert ran.code == 2
    assert ran.is_one_error
    assert "KeyError: 'weights' (" in ran.err
    assert "tiny.py:8)" in ran.err
    assert not Path("store").exists()


@pytest.mark.slow
@pytest.mark.xdist_group("compile")
def test_a_users_own_workload(child: Command) -> None:
    """TARGET may be module:function of the working directory; what is published is looked up by
    the name of the workload, and building it again adds nothing."""
    Path("tiny.py").write_text(WORKLOAD)
    ran = child("build", "tiny:build", "--store", "store", "--json", timeout_s=240)
    assert ran.code == 0, ran.err
    assert ran.json["verdict"] == "warm"
    assert ran.json["added"] == ran.json["units"] > 0
    assert child("show", "tiny", "--store", "store").code == 0
    again = child("build", "tiny:build", "--store", "store", timeout_s=240)
    assert "nothing to add" in again.out
