"""Functions made by hand: what a capture gives for a graph of a line, without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from cachesvc.runtime.aot import watch, words
from cachesvc.runtime.aot.call_key import tensor_key
from cachesvc.runtime.aot.capture import Captured
from cachesvc.runtime.aot.files import Stored, read, write
from cachesvc.runtime.aot.ledger import Ledger

Make: TypeAlias = Callable[..., Stored]


class Small(nn.Module):
    """What the functions are made for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        return x * 2


def captured(graph: str, *inputs: Tensor, **changes: Any) -> Captured:
    """A graph that is given `x` alone, as `args[0]`, and returns what the text says."""
    scope: dict[str, Any] = {}
    exec("def forward(self, x):\n    return tuple(__graph(x))", scope)
    forward: FunctionType = scope["forward"]
    made = Captured(
        code=forward.__code__,
        module=_module(f"def call(args):\n    return {graph}"),
        graph="__graph",
        names={"tuple": ["builtin", "tuple"]},
        libraries={},
        launches={},
        externs={},
        constants={},
        inputs=tuple(tensor_key(item) for item in inputs or (torch.ones(3),)),
        mutated=(),
        aligned=(),
        returned=(),
        amp=False,
        backward=None,
        ledger=Ledger(compile("()", "<ledger>", "eval"), (), {}),
        traced=(),
    )
    return replace(made, **changes)


def _module(text: str) -> CodeType:
    return compile(text, "<inductor>", "exec")


@pytest.fixture
def small() -> Small:
    return Small()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a function below the test's folder; arguments are those of `captured`."""

    def made(graph: str = "(args[0] * 2,)", *inputs: Tensor, **changes: Any) -> Stored:
        told: dict[str, Any] = {"group": "g", "part": "", "kind": "", "pins": {}}
        function = captured(graph, *inputs, **changes)
        return read(write(function, tmp_path, call=("call",), state=(True, None), **told))

    return made


@pytest.fixture(params=["words", "values"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How Python objects are watched: by words of memory, or one by one, as on a Python that keeps
    no such words."""
    if request.param == "values":
        monkeypatch.setattr(watch, "layout", lambda: None)
    elif words.layout() is None:
        pytest.skip("this Python keeps no such words")
    return str(request.param)
