"""Pins: code and libraries that a function was compiled with, beside its model."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from cachesvc.runtime.aot.pins import Pins, Unpinned, pins_of
from cachesvc.runtime.model import read_model

SOURCE = """
__version__ = "1.0"
GAIN = 2.0

class Cache:
    def update(self, x):
        return x * GAIN

def helper(x):
    return x
"""


@pytest.fixture
def traced(tmp_path: Any) -> Iterator[Any]:
    """A library that arguments come from, in a file, as code has one."""
    module: Any = types.ModuleType("traced_library")
    module.__file__ = str(tmp_path / "traced_library.py")
    sys.modules["traced_library"] = module
    exec(compile(SOURCE, module.__file__, "exec"), vars(module))
    yield module
    del sys.modules["traced_library"]


def pinned(model: nn.Module, *codes: Any) -> dict[str, Any]:
    return dict(pins_of(read_model(model), codes))


def difference(model: nn.Module, pins: dict[str, Any]) -> str:
    return Pins(read_model(model)).difference(pins)


def test_the_same_process_has_the_same_pins(traced: Any) -> None:
    """Nothing differs, and what was read besides is kept to be watched."""
    model = nn.Linear(2, 2)
    pins = pinned(model, traced.Cache.update.__code__)
    here = Pins(read_model(model))
    assert here.difference(pins) == ""
    assert list(here.readings) == [("traced_library:Cache.update",)]
    assert pins["versions"] == {"traced_library": "1.0"}


def test_another_model_is_told() -> None:
    """The digest holds, whatever label a user gave."""
    pins = pinned(nn.Linear(2, 2))
    assert "another model" in difference(nn.Linear(2, 3), pins)


def test_another_version_of_a_library_is_told(traced: Any) -> None:
    """Its own code outside the model may be another."""
    model = nn.Linear(2, 2)
    pins = pinned(model, traced.Cache.update.__code__)
    traced.__version__ = "2.0"
    assert difference(model, pins) == "traced_library is 2.0 here and was 1.0"


def test_another_code_of_an_argument_s_class_is_told(traced: Any) -> None:
    """Also what it reads: here, a global."""
    model = nn.Linear(2, 2)
    pins = pinned(model, traced.Cache.update.__code__)
    traced.GAIN = 3.0
    assert "Cache.update" in difference(model, pins)
    traced.GAIN = 2.0
    traced.Cache.update = lambda self, x: x
    assert "Cache.update" in difference(model, pins)


def test_a_replaced_function_of_torch_s_is_told() -> None:
    """Neither digest nor guards see it where torch itself calls it."""
    model = nn.Linear(2, 2)
    pins = pinned(model)
    with patch.object(nn.functional, "linear", torch.matmul):
        assert "torch were replaced" in difference(model, pins)
    assert difference(model, pins) == ""


def test_code_that_no_name_leads_to_cannot_be_pinned(traced: Any) -> None:
    """Another process would not find it."""
    code = compile("lambda x: x", traced.__file__, "eval").co_consts[0]
    with pytest.raises(Unpinned, match="another process lacks"):
        pinned(nn.Linear(2, 2), code)
