"""Models that run as they were written, though they were compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cachesvc.runtime.eager import eagerly, is_training, run_all_eagerly, run_eagerly

pytestmark = pytest.mark.xdist_group("runtime")

_seen: list[str] = []


def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
    """A compiler that notes that it was asked."""
    _seen.append(graph.code)
    return graph.forward


@pytest.fixture(autouse=True)
def compiled() -> Iterator[list[str]]:
    """What the compiler was asked for."""
    _seen.clear()
    yield _seen
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


@torch.compile(backend=backend)
def compiled_function(x: Tensor) -> Tensor:
    return x + 1


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.bias = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor, *, twice: bool = False) -> Tensor:
        out: Tensor = self.inner(x) + self.bias
        return out * 2 if twice else out


class Decorated(Model):
    @torch.compile(backend=backend)
    def forward(self, x: Tensor, *, twice: bool = False) -> Tensor:
        return super().forward(x, twice=twice)


class Holding(Model):
    def __init__(self) -> None:
        super().__init__()
        self.call = torch.compile(lambda x: x + 1, backend=backend)

    def forward(self, x: Tensor, *, twice: bool = False) -> Tensor:
        return super().forward(self.call(x), twice=twice)


class Naming(Model):
    def forward(self, x: Tensor, *, twice: bool = False) -> Tensor:
        return super().forward(compiled_function(x), twice=twice)


def _wrapped() -> nn.Module:
    return torch.compile(Model(), backend=backend)  # type: ignore[return-value]


def _in_place() -> nn.Module:
    model = Model()
    model.compile(backend=backend)
    return model


def _own_forward() -> nn.Module:
    model = Model()
    model.forward = torch.compile(model.forward, backend=backend)  # type: ignore[method-assign]
    return model


def _part() -> nn.Module:
    model = Model()
    model.inner = torch.compile(model.inner, backend=backend)  # type: ignore[assignment]
    return model


def _twice() -> nn.Module:
    return torch.compile(_part(), backend=backend)  # type: ignore[return-value]


FORMS = [_wrapped, _in_place, _own_forward, _part, _twice, Model]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("called", [False, True], ids=["new", "called before"])
def test_a_module_runs_as_it_was_written(
    compiled: list[str], form: Callable[[], nn.Module], called: bool
) -> None:
    """However it was compiled, and also after it has run compiled: the compiler is asked no more,
    and parameters, class, names, keywords, gradients and hooks are as they were."""
    model, x = form(), torch.ones(3, 2)
    expected = model(x) if called else None
    compiled.clear()
    kind, names, hooked = type(model), list(model.state_dict()), []
    assert run_eagerly(model)
    model.register_forward_hook(lambda *_: hooked.append(1))
    out, doubled = model(x), model(torch.ones(5, 2), twice=True)
    doubled.sum().backward()
    assert compiled == []
    assert expected is None or torch.equal(out, expected)
    assert torch.equal(doubled[:3], out * 2)
    assert all(value.grad is not None for value in model.parameters())
    assert (type(model), list(model.state_dict())) == (kind, names)
    assert hooked == [1, 1]


@pytest.mark.parametrize("form", [Decorated, Holding, Naming])
def test_a_module_that_cannot_be_changed_in_place(form: Callable[[], nn.Module]) -> None:
    """What is compiled is of its class or a function that it calls: the answer says so."""
    assert not run_eagerly(form())


def test_functions() -> None:
    """One that was compiled, and one that calls it or a compiled module, cannot be changed."""
    model = _wrapped()
    assert not run_eagerly(compiled_function)
    assert not run_eagerly(lambda x: compiled_function(x) + 1)
    assert not run_eagerly(lambda x: model(x) + 1)
    assert run_eagerly(lambda x: x + 1)


@pytest.mark.parametrize("form", [*FORMS, Decorated, Holding, Naming])
def test_everything_at_once(compiled: list[str], form: Callable[[], nn.Module]) -> None:
    """Whatever there is, until the program sets the stance again."""
    model = form()
    run_all_eagerly()
    model(torch.ones(2, 2))
    compiled_function(torch.ones(2, 2))
    assert compiled == []
    torch.compiler.set_stance("default")
    compiled_function(torch.ones(2, 2))
    assert len(compiled) == 1


def test_for_a_while(compiled: list[str]) -> None:
    """Within the context nothing is compiled, also one inside another; afterwards it is."""
    with eagerly():
        with eagerly():
            compiled_function(torch.ones(2, 2))
        compiled_function(torch.ones(2, 2))
    assert compiled == []
    compiled_function(torch.ones(2, 2))
    assert len(compiled) == 1


def test_training_mode() -> None:
    """Of any part; what is no module is never in it."""
    model = Model().eval()
    assert not is_training(model)
    model.inner.train()
    assert is_training(model)
    assert is_training(torch.compile(model, backend=backend))
    assert not is_training(compiled_function)
