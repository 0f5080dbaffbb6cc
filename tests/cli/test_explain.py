"""`tccache explain` as its user meets it: one bundle against this machine, or two bundles."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

FIELDS = {"schema", "asked", "nearest", "would_hit", "differences", "unknown", "notes"}
AREAS = {"environment", "model", "context", "requirements"}

APP = """
import cachesvc, torch

print("importing the app")

def workload():
    model = torch.nn.Linear(2, 2)
    return cachesvc.Workload("m", model, ((torch.ones(1, 2),),))
"""


@pytest.fixture
def other(tmp_path: Path, tree: Path, foreign: Path, tccache: Command) -> Path:
    """A store that holds the tree as another machine's, under the name `m`."""
    place = tmp_path / "other"
    line = ("push", "m", "--store", place, "--inductor-dir", tree, "--environment", foreign)
    assert tccache(*line).code == 0
    return place


def test_json_is_one_object(tccache: Command, other: Path) -> None:
    """Its fields are an interface: they are only ever added."""
    ran = tccache("explain", "m", "--store", other, "--json")
    assert (ran.code, ran.err) == (0, "")
    told = ran.json
    assert told["schema"] == "tccache.explain/1"
    assert set(told) == FIELDS
    assert set(told["asked"]) == set(told["nearest"]) == {"name", "model", "environment"}
    assert set(told["differences"]) == AREAS
    assert set(told["differences"]["environment"][0]) == {"component", "old", "new"}
    assert told["would_hit"] is False


def test_a_miss_names_each_component(tccache: Command, other: Path) -> None:
    """A line each with both values, and exit 0: the question was answered."""
    ran = tccache("explain", "m", "--store", other)
    environment = tccache("env", "--json").json["components"]
    assert (ran.code, ran.err) == (0, "")
    first, *lines = ran.out.splitlines()
    assert first.startswith("m: a miss here; the nearest bundle is")
    assert f"  environment device: NVIDIA H200 -> {environment['device']}" in lines
    assert any("give module:function" in line for line in lines)


def test_a_hit_says_so(tccache: Command, store: Path, other: Path, foreign: Path) -> None:
    """Here, and for the machine that is named; what is not known is not called equal."""
    here = tccache("explain", "m", "--store", store)
    there = tccache("explain", "m", "--store", other, "--environment", foreign)
    assert here.out.splitlines()[0].endswith(
        ": nothing differs in environment, requirements, a start here finds it"
    )
    assert there.out.splitlines()[0].endswith(
        ": nothing differs in environment, a start here finds it"
    )
    assert (here.code, there.code) == (0, 0)


def test_nothing_under_the_name(tccache: Command, store: Path) -> None:
    """Exit 3, with the names that there are."""
    ran = tccache("explain", "mm", "--store", store, "--json")
    assert ran.code == 3
    assert ran.is_one_error
    assert "it holds m: see `tccache ls`" in ran.err or "did you mean m?" in ran.err


def test_two_bundles(tccache: Command, other: Path, tree: Path, foreign: Path) -> None:
    """As `show` names them; no text names two at once, and no flag of MODEL makes sense."""
    line = ("--store", other)
    tccache("push", "m", *line, "--inductor-dir", tree)
    tccache("push", "n", *line, "--inductor-dir", tree)
    (foreign_bundle,) = (
        f"{item['name']}/{item['model']}/{item['environment'][:12]}"
        for item in tccache("ls", "m", *line, "--json").json["bundles"]
        if item["environment"] != tccache("env", "--json").json["digest"]
    )
    told = tccache("explain", foreign_bundle, "n", *line, "--json")
    assert (told.code, told.json["would_hit"]) == (0, None)
    devices = [d for d in told.json["differences"]["environment"] if d["component"] == "device"]
    assert devices[0]["old"] == "NVIDIA H200"
    assert (
        f"  environment device: NVIDIA H200 -> {devices[0]['new']}"
        in tccache("explain", foreign_bundle, "n", *line).out
    )
    for arguments, code, words in (
        (("m", "n"), 2, "m means 2 bundles: m/any/"),
        (("n", "x"), 3, "no bundle x in"),
        (("n", "n", "--label", "m"), 2, "two bundles are named in full"),
        (("n", "n", "--environment", foreign), 2, "two bundles are named in full"),
    ):
        ran = tccache("explain", *arguments, *line)
        assert (ran.code, ran.is_one_error) == (code, True)
        assert words in ran.err


@pytest.mark.xdist_group("start")
def test_a_target_in_the_working_directory(child: Command, tmp_path: Path, store: Path) -> None:
    """It is found there, and what it prints while it is loaded leaves stdout to the result."""
    (tmp_path / "app.py").write_text(APP)
    ran = child("explain", "app:workload", "--store", store, "--json", "--salt", "v2")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert "importing the app" in ran.err
    assert told["asked"]["name"] == "m"
    assert len(told["asked"]["model"]) == 64
    assert (told["nearest"]["model"], told["would_hit"]) == ("any", True)
    assert any("pushed under its name alone" in note for note in told["notes"])


def test_what_is_no_target(tccache: Command, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is not there is the caller's mistake, named in one line."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    ran = tccache("explain", "no_such_module:workload", "--store", store)
    assert (ran.code, ran.is_one_error) == (2, True)
    assert "no_such_module" in ran.err
