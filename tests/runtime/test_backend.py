"""What torch.compile was asked to do, read off the compiled object."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cachesvc.runtime.backend import DEFAULT, compile_options, is_compiled, original

pytestmark = pytest.mark.xdist_group("runtime")


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2))


def function(x: torch.Tensor) -> torch.Tensor:
    return x


def compiled_in_place() -> nn.Module:
    model = linear()
    model.compile()
    return model


def compiled_part() -> nn.Module:
    model = linear()
    model[0] = torch.compile(model[0])  # type: ignore[operator,index]
    return model


def compiled_forward() -> nn.Module:
    model = linear()
    model.forward = torch.compile(model.forward)  # type: ignore[method-assign]
    return model


class Decorated(nn.Module):
    @torch.compile
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


COMPILED: dict[str, Any] = {
    "module": lambda: torch.compile(linear()),
    "function": lambda: torch.compile(function),
    "in place": compiled_in_place,
    "a part": compiled_part,
    "its forward": compiled_forward,
    "decorated": Decorated,
}


@pytest.mark.parametrize("name", COMPILED)
def test_every_form_of_compile_is_seen(name: str) -> None:
    """A model that is compiled in any way is not compiled once more around."""
    assert is_compiled(COMPILED[name]())


def test_what_is_not_compiled_is_not() -> None:
    """Modules, functions and strange objects."""

    class Strange:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert not any(is_compiled(item) for item in (linear(), function, Strange(), None, 7))


def test_the_original_is_what_was_compiled() -> None:
    """Of a module the module, of a function the function, of a bound method that method."""
    model = linear()
    assert original(torch.compile(model)) is model
    assert original(torch.compile(function)) is function
    assert original(torch.compile(model.forward)) == model.forward
    assert original(model) is model


def test_defaults_are_the_same_before_and_after() -> None:
    """What is not compiled yet is described as it will be."""
    forms = [linear(), compiled_in_place(), compiled_forward(), Decorated(), function]
    assert [compile_options(item) for item in forms] == [DEFAULT] * len(forms)
    assert compile_options(torch.compile(linear())) == DEFAULT
    assert compile_options(torch.compile(function)) == DEFAULT


def test_options_are_read_from_every_form() -> None:
    """The outermost compile counts, whether of a module, in place, of its forward or a function."""
    wrapped, in_place, forward = torch.compile(linear(), dynamic=True), linear(), linear()
    in_place.compile(dynamic=True)
    forward.forward = torch.compile(forward.forward, dynamic=True)  # type: ignore[method-assign]
    for item in (wrapped, in_place, forward, torch.compile(function, dynamic=True)):
        assert compile_options(item) == {**DEFAULT, "dynamic": True}
