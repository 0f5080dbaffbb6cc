"""Targets: demo:NAME, hf:ARCH and module:function, and what their functions are asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc import Workload
from cachesvc.core.errors import UsageError
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.runtime.workloads import check_target, load_workload

pytestmark = pytest.mark.xdist_group("runtime")

MODULE = """
import cachesvc, torch

GIVEN = []

def model():
    return torch.nn.Linear(2, 2)

def given(**arguments):
    GIVEN.append(arguments)
    return cachesvc.Workload("given", model(), [(torch.ones(1, 2),)])

def nothing():
    return None

def plain():
    return given()

def sized(size="usual"):
    return given(size=size)

def by_place(size, /):
    return given()

def compiling(*, compile=torch.compile, train=False):
    return given(compile=compile, train=train)

def compiled():
    return cachesvc.Workload("compiled", torch.compile(model()), [(torch.ones(1, 2),)])

class Hidden:
    __signature__ = "unreadable"

    def __call__(self):
        return given()

hidden = Hidden()
"""


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A module of a user's; what its functions have been given."""
    (tmp_path / "users_workloads.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_workloads", raising=False)
    import users_workloads  # type: ignore[import-not-found]

    found: list[dict[str, Any]] = users_workloads.GIVEN
    return found


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("demo:nothing", "choose one of mlp, gpt, resnet"),
        ("hf:nothing", "choose one of llama, qwen3, mistral, gemma3, gpt2, bert, vit"),
        ("demo:", "demo:NAME, hf:ARCH or module:function"),
        ("nothing", "module:function"),
        (":function", "module:function"),
        ("no_such_module:function", "no_such_module"),
        ("cachesvc:no_such_function", "no_such_function"),
        ("users_workloads:nothing", "gave a NoneType, not a cachesvc.Workload"),
    ],
)
def test_what_names_no_workload_is_refused(target: str, reason: str, users: object) -> None:
    """The message says what was wrong with the target."""
    with pytest.raises(UsageError, match=reason):
        load_workload(target)


def test_an_architecture_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transformers the message says what to install."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"hf:llama needs transformers.*pip install transformers"):
        check_target("hf:llama")


def test_checking_a_target_imports_nothing_heavy() -> None:
    """The command checks a target before it starts any process that needs torch."""
    code = (
        "import contextlib, sys\n"
        "from cachesvc.core.errors import UsageError\n"
        "from cachesvc.runtime.workloads import check_target\n"
        "check_target('demo:resnet')\n"
        "with contextlib.suppress(UsageError):  # that it is not installed\n"
        "    check_target('hf:llama')\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_function_is_given_what_was_asked_for(users: list[dict[str, Any]]) -> None:
    """By keyword, and nothing else: its own defaults stay."""
    load_workload("users_workloads:plain")
    load_workload("users_workloads:sized")
    load_workload("users_workloads:sized", WorkloadOptions(size="vast"))
    load_workload("users_workloads:given", WorkloadOptions("vast", (2, 4), train=True), id)
    load_workload("users_workloads:compiling", WorkloadOptions(train=True), id)
    assert users == [
        {},
        {"size": "usual"},
        {"size": "vast"},
        {"size": "vast", "shapes": (2, 4), "train": True, "compile": id},
        {"compile": id, "train": True},
    ]


@pytest.mark.parametrize("function", ["plain", "by_place", "compiling", "hidden"])
def test_a_function_is_not_given_what_it_does_not_take(
    users: list[dict[str, Any]], function: str
) -> None:
    """The message names the parameter and the flag; nothing is called."""
    reason = f"users_workloads:{function} takes no `size`: give the function .* leave --size away"
    with pytest.raises(UsageError, match=reason):
        load_workload(f"users_workloads:{function}", WorkloadOptions(size="vast"))
    assert users == []


def test_nobody_needs_to_take_compile(users: list[dict[str, Any]]) -> None:
    """A workload that leaves compiling to the caller, one that has compiled, one that shows no
    parameters: all load."""
    for function in ("plain", "compiled", "hidden"):
        load_workload(f"users_workloads:{function}", compile=id)
    assert users == [{}, {}]


def test_a_size_that_is_none() -> None:
    """Of the workloads of this library; the message lists those there are."""
    with pytest.raises(UsageError, match=r"demo:gpt has no size vast: .* tiny, small, large"):
        load_workload("demo:gpt", WorkloadOptions(size="vast"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"items": 0}, "works on 0 items: write a number from 1 on"),
        ({"items": True}, "works on True items"),
        ({"items": 2.5}, r"works on 2\.5 items"),
        ({"unit": " "}, "no unit of items: write a word, such as images"),
        ({"unit": None}, "None is no unit"),
    ],
)
def test_what_counts_nothing_is_refused(change: dict[str, Any], reason: str) -> None:
    """Items are a whole number, and a unit has a name."""
    make: Callable[..., Workload] = Workload
    assert (make("w", None, [()]).items, make("w", None, [()]).unit) == (1, "calls")
    with pytest.raises(UsageError, match=reason):
        make("w", None, [()], **change)


@pytest.mark.parametrize("target", ["../lib/app.py:workload", "app.py:", "lib/app:f", ".app:f"])
def test_a_path_is_no_module(target: str) -> None:
    """Python imports names: the error says where it looks for them."""
    with pytest.raises(UsageError, match=r"is no (module: write app:workload|target)"):
        check_target(target)
