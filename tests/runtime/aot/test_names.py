"""The globals of captured code are told so that another process finds the same."""

from __future__ import annotations

import builtins
import functools
import json
import types
from collections import OrderedDict
from typing import Any

import pytest
import torch

from cachesvc.runtime.aot.names import Unresolved, recipes, resolved

HERE = object()


def _code(text: str) -> types.CodeType:
    return compile(text, "<test>", "eval")


def _there(text: str, scope: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The values that the names in a text have after a way through JSON."""
    told = recipes(_code(text), scope, own, "graph")
    return resolved(json.loads(json.dumps(told)), own)


def test_each_kind_of_name_leads_back() -> None:
    """A global of the function, a module, a built-in, and what lies in a module by its name."""
    scope = {
        "own": HERE,
        "alias": functools,
        "kind": OrderedDict,
        "method": torch.nn.Linear.forward,
        "__builtins_dict___0": vars(builtins),
        "graph": None,
    }
    text = "graph(own, alias.partial, kind, method, __builtins_dict___0, len)"
    assert _there(text, scope, {"own": HERE}) == {
        "own": HERE,
        "alias": functools,
        "kind": OrderedDict,
        "method": torch.nn.Linear.forward,
        "__builtins_dict___0": vars(builtins),
        "len": len,
    }


def test_names_of_code_inside_count() -> None:
    """A function that captured code makes looks its names up in the same globals."""
    assert _there("lambda: len", {}, {}) == {"len": len}


def test_dynamo_is_stood_in_for_where_all_is_known() -> None:
    """One name more, or the module handed on, and it is Dynamo itself."""
    from torch._dynamo import utils

    known = _there("u.iter_next(u.make_cell)", {"u": utils}, {})["u"]
    assert known is not utils
    assert _there("u.iter_next(u.build_stream)", {"u": utils}, {})["u"] is utils
    assert _there("f(u)", {"u": utils, "f": len}, {})["u"] is utils


@pytest.mark.parametrize(
    "value", [object(), lambda: 0, None, [1]], ids=["object", "function", "none", "list"]
)
def test_a_value_without_a_place_is_refused(value: object) -> None:
    """Nobody could find it again."""
    with pytest.raises(Unresolved, match="names it, a"):
        recipes(_code("it()"), {"it": value}, {}, "graph")


def test_a_name_that_is_not_there_any_more() -> None:
    """Is an error at load, so that the function is left out."""
    told = recipes(_code("own"), {"own": HERE}, {"own": HERE}, "graph")
    with pytest.raises(KeyError):
        resolved(told, {})


def test_code_that_writes_globals_is_refused() -> None:
    """It would write beside the module, which then never changes."""
    code = compile("def f():\n    global steps\n    steps = graph()", "<test>", "exec")
    with pytest.raises(Unresolved, match="writes the global"):
        recipes(code, {"graph": None}, {}, "graph")
