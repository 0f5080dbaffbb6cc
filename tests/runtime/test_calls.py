"""Example calls: what may be given, how they are told apart, and what they are run through."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from torch import nn

from cachesvc.core.errors import UsageError
from cachesvc.runtime.calls import example_calls, timed

pytestmark = pytest.mark.xdist_group("runtime")


def test_inputs_come_first_then_calls_in_order() -> None:
    """One call's arguments, positional or by keyword, or a callable that makes the call itself."""
    seen: list[Any] = []

    def model(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    given = [(2, 3), UserDict(x=4), lambda: model("itself"), []]
    for call in example_calls(model, [1], given):
        timed(call)
    assert seen == [((1,), {}), ((2, 3), {}), ((), {"x": 4}), (("itself",), {}), ((), {})]


def test_no_inputs_are_no_calls() -> None:
    """None is not a call; an empty sequence is one, without arguments."""
    assert example_calls(print, None, None) == ()
    assert len(example_calls(print, [], None)) == 1


@pytest.mark.parametrize("item", [torch.ones(2), 7, "text"], ids=["tensor", "number", "text"])
def test_a_bare_argument_is_refused(item: Any) -> None:
    """A tensor is not taken apart along its first dimension: the message says how to write it."""
    with pytest.raises(UsageError, match=r"inputs=\[batch\]"):
        example_calls(print, item, None)


@pytest.mark.parametrize(
    ("inputs", "signature"),
    [
        ([torch.ones(2, 4)], "(float32[2, 4])"),
        ([torch.ones(2, requires_grad=True)], "(float32[2] grad)"),
        ({"ids": torch.ones(1, dtype=torch.int64), "flag": None}, "(ids=int64[1], flag=None)"),
        ([{"a": torch.ones(1)}, (1, "x"), True], "({a: float32[1]}, [1, 'x'], True)"),
        ([object()], "(object)"),
    ],
)
def test_signatures_hold_what_compiles_differently(inputs: Any, signature: str) -> None:
    """Shapes, dtypes, gradients, keywords and plain values; no address, no tensor values."""
    (call,) = example_calls(print, inputs, None)
    assert call.signature == signature


def test_a_call_that_calls_itself_goes_by_its_name() -> None:
    """A training step is shown by the name of its function."""

    def step() -> None: ...

    (call,) = example_calls(print, None, [step])
    assert call.signature.endswith("step")


def test_a_module_that_nobody_compiled_is_called_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that its code is there when it is compiled later; a compiled one is left as it is."""
    made: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        made.append("the user's compile")
        return graph.forward

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    ours, users = Model(), Model()
    users.compile(backend=backend)
    monkeypatch.setattr(torch, "compile", lambda model: lambda x: made.append("our compile"))
    for model in (ours, users):
        (call,) = example_calls(model, [torch.ones(1, 2)], None)
        call.run()
    assert made == ["our compile", "the user's compile"]
    torch._dynamo.reset()


def test_a_failing_call_raises_what_it_raises() -> None:
    """Whoever makes the call decides what that means."""
    (call,) = example_calls(lambda: 1 / 0, [], None)
    with pytest.raises(ZeroDivisionError):
        timed(call)
