"""The seal: whatever a model's digest has read, it is seen to change; weights and state are not."""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from cachesvc.runtime.aot.library import Library
from cachesvc.runtime.aot.seal import Seal
from cachesvc.runtime.model import read_model

pytestmark = pytest.mark.usefixtures("way")

SOURCE = """
import functools
import torch
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace

GAIN = 2.0
TABLE = {"a": [1.0, 2.0]}
CALLS = []

def helper(x, slope=0.1, *, limit=4.0):
    CALLS.append(1)
    return (x * slope).clamp(max=limit) * GAIN + TABLE["a"][0]

def shifted(x, by):
    return x + by

def closed(amount):
    def inner(x):
        return x * amount
    def change(value):
        nonlocal amount
        amount = value
    inner.change = change
    return inner

@dataclass(slots=True)
class Slotted:
    factor: float = 2.0

class Private:
    __slots__ = ("__hidden",)
    def __init__(self):
        self.__hidden = 1.0
    def hidden(self):
        return self.__hidden

class Config:
    eps = 1e-3
    def __init__(self):
        self.size = 4
        self.names = {"x"}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.register_buffer("table", torch.ones(4))
        self.config = Config()
        self.slotted = Slotted()
        self.private = Private()
        self.partial = functools.partial(shifted, by=1.0)
        self.closed = closed(2.0)
        self.levels = [1.0, 2.0]
        self.space = SimpleNamespace(gain=1.0)
        self.empty = SimpleNamespace()
        self.view = MappingProxyType({"a": 1.0})
        self.count = 0

    def forward(self, x):
        self.count += 1
        for layer in self.layers:
            x = layer(x)
        y = helper(self.linear(x)) * self.config.size * self.config.eps + self.slotted.factor
        y = y + len(self.config.names) + self.private.hidden() + sum(self.levels)
        return self.closed(self.partial(y)) + self.table
"""


@pytest.fixture
def code() -> Iterator[Any]:
    """A module of its own, which a test may change as it likes."""
    module = types.ModuleType("sealed_model")
    sys.modules["sealed_model"] = module
    exec(SOURCE, vars(module))
    yield module
    del sys.modules["sealed_model"]


@dataclass
class Case:
    code: Any
    model: Any


def set_code(case: Case) -> None:
    case.code.helper.__code__ = (lambda x, slope=0.1, *, limit=4.0: x).__code__


def replace_fields(case: Case) -> None:
    case.model.linear.__dict__ = dict(case.model.linear.__dict__)


def set_kind(case: Case) -> None:
    case.model.linear.__class__ = type("Linear", (nn.Linear,), {})


def set_bases(case: Case) -> None:
    base = type("Base", (nn.Module,), {})
    case.code.Model.__bases__ = (base,)


CHANGES: dict[str, Callable[[Case], object]] = {
    "training": lambda c: c.model.train(not c.model.training),
    "training of one": lambda c: c.model.linear.train(not c.model.linear.training),
    "attribute": lambda c: setattr(c.model.linear, "in_features", 5),
    "attribute past setattr": lambda c: c.model.linear.__dict__.update(in_features=5),
    "attribute by object": lambda c: object.__setattr__(c.model.linear, "in_features", 5),
    "attribute added": lambda c: setattr(c.model, "more", 1),
    "attribute taken away": lambda c: delattr(c.model, "levels"),
    "dictionary replaced": replace_fields,
    "class": set_kind,
    "bases": set_bases,
    "forward of an instance": lambda c: setattr(c.model.linear, "forward", lambda x: x),
    "forward of a class": lambda c: setattr(c.code.Model, "forward", lambda self, x: x),
    "forward of a class of torch's": lambda c: None,  # see test_library.py
    "hook": lambda c: c.model.linear.register_forward_hook(lambda *a: None),
    "hook before": lambda c: c.model.linear.register_forward_pre_hook(lambda *a: None),
    "hook of the model": lambda c: c.model.register_forward_hook(lambda *a: None),
    "module": lambda c: setattr(c.model, "linear", nn.Identity()),
    "module past setattr": lambda c: c.model._modules.update(linear=nn.Identity()),
    "module added": lambda c: c.model.layers.append(nn.Identity()),
    "modules reordered": lambda c: c.model.layers._modules.update(
        {"0": c.model.layers._modules.pop("0")}
    ),
    "parameter untied": lambda c: setattr(c.model.linear, "weight", nn.Parameter(torch.ones(4, 4))),
    "parameter of another shape": lambda c: setattr(
        c.model.linear.weight, "data", torch.ones(2, 4)
    ),
    "parameter of another dtype": lambda c: c.model.linear.to(torch.float64),
    "parameter elsewhere": lambda c: c.model.linear.to("meta"),
    "requires_grad": lambda c: c.model.linear.weight.requires_grad_(False),
    "strides": lambda c: setattr(
        c.model.linear.weight, "data", c.model.linear.weight.data.t().contiguous().t()
    ),
    "buffer": lambda c: setattr(c.model, "table", torch.ones(3)),
    "bias taken away": lambda c: setattr(c.model.linear, "bias", None),
    "config": lambda c: setattr(c.model.config, "size", 5),
    "config, a set": lambda c: c.model.config.names.add("y"),
    "config, another": lambda c: setattr(c.model, "config", c.code.Config()),
    "constant of a class": lambda c: setattr(c.code.Config, "eps", 2.0),
    "property": lambda c: setattr(c.code.Config, "size", property(lambda self: 7)),
    "slot": lambda c: setattr(c.model.slotted, "factor", 3.0),
    "private slot": lambda c: setattr(c.model.private, "_Private__hidden", 3.0),
    "namespace": lambda c: setattr(c.model.space, "gain", 3.0),
    "empty namespace": lambda c: setattr(c.model.empty, "gain", 3.0),
    "view of a dictionary": lambda c: gc.get_referents(c.model.view)[0].update(a=2.0),
    "list": lambda c: c.model.levels.append(3.0),
    "partial keyword": lambda c: c.model.partial.keywords.update(by=2.0),
    "closure": lambda c: c.model.closed.change(5.0),
    "global": lambda c: setattr(c.code, "GAIN", 5.0),
    "nested global": lambda c: c.code.TABLE["a"].append(5.0),
    "helper": lambda c: setattr(c.code, "helper", lambda x: x),
    "code of a helper": set_code,
    "default of a helper": lambda c: setattr(c.code.helper, "__defaults__", (0.5,)),
    "keyword default of a helper": lambda c: c.code.helper.__kwdefaults__.update(limit=0.5),
}
del CHANGES["forward of a class of torch's"]


def sealed(code: Any) -> tuple[Case, Seal]:
    model = code.Model().eval()
    return Case(code, model), Seal(read_model(model), Library({nn.Linear}))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_breaks_the_seal(code: Any, name: str) -> None:
    """Each is one that the digest would have told, too."""
    case, seal = sealed(code)
    assert seal.is_whole()
    CHANGES[name](case)
    assert not seal.is_whole()
    assert not seal.is_whole()


KEEPS: dict[str, Callable[[Case], object]] = {
    "a call": lambda c: c.model(torch.ones(2, 4)),
    "weights loaded": lambda c: c.model.load_state_dict(c.code.Model().state_dict()),
    "weights in place": lambda c: c.model.linear.weight.data.mul_(2),
    "data": lambda c: setattr(c.model.linear.weight, "data", torch.ones(4, 4)),
    "gradients": lambda c: c.model(torch.ones(2, 4)).sum().backward(),
    "the same mode": lambda c: c.model.eval(),
    "there and back": lambda c: c.model.train().eval(),
    "a hook there and back": lambda c: c.model.linear.register_forward_hook(print).remove(),
    "a global that nobody reads": lambda c: setattr(c.code, "UNREAD", 1),
    "a counter of its own": lambda c: setattr(c.model, "count", 9),
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_is_no_change_keeps_the_seal_whole(code: Any, name: str) -> None:
    """Weights, state that the model's own code writes, and what nobody reads."""
    case, seal = sealed(code)
    KEEPS[name](case)
    assert seal.is_whole()


def test_a_global_hook_breaks_the_seal(code: Any) -> None:
    """torch runs it for every module."""
    _, seal = sealed(code)
    handle = nn.modules.module.register_module_forward_hook(lambda *a: None)
    assert not seal.is_whole()
    handle.remove()
    assert seal.is_whole()


def test_a_seal_says_what_it_leaves_open(code: Any) -> None:
    """The names that the model's code writes, for whoever must look at them otherwise."""
    _, seal = sealed(code)
    assert "count" in seal.loose
    assert "levels" not in seal.loose


def test_a_seal_knows_the_model_s_tensors(code: Any) -> None:
    """Parameters and buffers, so that no argument can be one of them unseen."""
    case, seal = sealed(code)
    assert {id(case.model.linear.weight), id(case.model.table)} <= set(seal.tensors)
    assert functools.reduce(lambda a, b: a and b, [id(torch.ones(1)) not in seal.tensors])
