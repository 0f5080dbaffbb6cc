"""The ledger of guards, and the ways on which it finds its constants."""

from __future__ import annotations

import gc
import operator
import os
import weakref
from collections import deque
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from cachesvc.core.digest import canonical_json
from cachesvc.runtime.aot import ledger as ledgers
from cachesvc.runtime.aot.ledger import Ledger, OwnArgument, ledger_of
from cachesvc.runtime.aot.paths import Paths

GAIN = 2.0
SIZES = deque([1.0])
TABLE: dict[str, Any] = {"a": [1.0]}


def helper(x: Any, slope: float = 0.1) -> Any:
    return x


helper.gain = 3.0  # type: ignore[attr-defined]


class Opaque:
    kind = 1
    shared = operator.add

    def __init__(self) -> None:
        self.value = 1.5
        self.act = operator.add


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.opaque = Opaque()
        self.count = 0
        self.sequence = [1.0]
        self.cached_path = 1.0
        self.state = torch.ones(3)

    def forward(self, x: Any, *rest: Any, scale: float = 1.0) -> Any:
        return x


def guard(kind: str, name: str, value: Any) -> Any:
    return SimpleNamespace(name=name, guard_type=kind, value=value, has_value=True)


FACTS: list[tuple[str, str, Any]] = [
    ("CONSTANT_MATCH", "G['GAIN']", GAIN),
    ("SEQUENCE_LENGTH", "G['SIZES']", SIZES),
    ("CONSTANT_MATCH", "G['TABLE']['a'][0]", 1.0),
    ("CONSTANT_MATCH", "G['helper'].gain", 3.0),
    ("CONSTANT_MATCH", "G['helper'].__defaults__[0]", 0.1),
    ("CLOSURE_MATCH", "G['helper']", helper),
    ("CONSTANT_MATCH", "self.opaque.value", 1.5),
    ("CONSTANT_MATCH", "self.opaque.kind", 1),
    ("FUNCTION_MATCH", "self.opaque.act", operator.add),
    ("FUNCTION_MATCH", "self.opaque.shared", operator.add),
    ("TYPE_MATCH", "self.opaque", None),
    ("EQUALS_MATCH", "self.count", 0),
    ("EQUALS_MATCH", "self.cached_path", 1.0),
    ("CONSTANT_MATCH", "self.sequence[0]", 1.0),
    ("CONSTANT_MATCH", "scale", 1.0),
    ("TENSOR_MATCH", "self.state", None),
]


def made(model: Model) -> Ledger:
    values = {"self.opaque": model.opaque, "self.state": model.state}
    guards = [guard(kind, name, values.get(name, value)) for kind, name, value in FACTS]
    ledger = ledger_of(guards, {}, Model.forward, (model, 1), {})
    assert len(ledger.expressions) == len(FACTS)  # but for the tensor, and the deque twice
    return ledger


def paths_of(ledger: Ledger, model: Model) -> Paths:
    loose = {"count", "sequence", "state"}
    return Paths(ledger, model, Model.forward, (model, 1), {}, loose=loose)


CHANGES: dict[str, Callable[[Model, pytest.MonkeyPatch], object]] = {
    "a global": lambda m, p: p.setitem(globals(), "GAIN", 3.0),
    "a deque": lambda m, p: p.setitem(globals(), "SIZES", deque([1.0, 2.0])),
    "a nested list": lambda m, p: p.setitem(TABLE, "a", [5.0]),
    "a function": lambda m, p: p.setitem(globals(), "helper", lambda x: x),
    "an attribute of a function": lambda m, p: p.setattr(helper, "gain", 4.0),
    "a default": lambda m, p: p.setattr(helper, "__defaults__", (0.5,)),
    "an object's field": lambda m, p: setattr(m.opaque, "value", 2.5),
    "a field that hides its class's": lambda m, p: setattr(m.opaque, "kind", 2),
    "a constant of a class": lambda m, p: p.setattr(Opaque, "kind", 2),
    "a built-in that an object holds": lambda m, p: setattr(m.opaque, "act", operator.mul),
    "a built-in that a class holds": lambda m, p: p.setattr(Opaque, "shared", operator.mul),
    "a class": lambda m, p: setattr(m.opaque, "__class__", type("Other", (Opaque,), {})),
    "what the model writes": lambda m, p: setattr(m, "count", 1),
    "a list that the model writes": lambda m, p: m.sequence.__setitem__(0, 2.0),
    "a number under the name of a path": lambda m, p: setattr(m, "cached_path", 2.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_constant_is_found(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways to it are broken, and the ledger says that it is another."""
    model = Model()
    ledger = made(model)
    paths = paths_of(ledger, model)
    assert paths.are_whole()
    assert ledger.first_difference(Model.forward, (model, 1), {}) == ""
    CHANGES[name](model, monkeypatch)
    assert not paths.are_whole()
    assert ledger.first_difference(Model.forward, (model, 1), {})


@pytest.mark.parametrize("shape", [3, 4])
def test_a_tensor_that_the_model_writes_is_watched(way: str, shape: int) -> None:
    """Another one in its place must be looked at by whoever calls the graph."""
    model = Model()
    paths = paths_of(made(model), model)
    model.state = torch.zeros(shape)
    assert not paths.are_whole()


def test_tensors_of_arguments_end_with_their_call(way: str) -> None:
    """The key of the next call has all that a graph wants of them; kept, they would hold a cache
    of keys and values, or what a backward pass needs."""
    model, x = Model(), torch.ones(3)
    ledger = ledger_of([guard("TENSOR_MATCH", "x", x)], {}, Model.forward, (model, x), {})
    assert ledger.tensors == ("x",)
    paths = Paths(ledger, model, Model.forward, (model, x), {}, loose=())
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert paths.are_whole()


def test_a_way_that_raises_is_not_whole(way: str) -> None:
    """Whatever an attribute raises stays here."""

    class Raising(Opaque):
        is_broken = False

        def __getattr__(self, name: str) -> Any:
            if self.is_broken:
                raise RuntimeError("no such thing")
            return 1.0

    model = Model()
    model.opaque = Raising()
    guards = [guard("CONSTANT_MATCH", "self.opaque.virtual", 1.0)]
    ledger = ledger_of(guards, {}, Model.forward, (model, 1), {})
    paths = paths_of(ledger, model)
    assert paths.are_whole()
    Raising.is_broken = True
    assert not paths.are_whole()


def test_a_deque_made_longer_is_found(way: str) -> None:
    """It has no number of changes, and is no list: its length is asked each time."""
    model = Model()
    ledger = made(model)
    paths = paths_of(ledger, model)
    SIZES.append(1.0)
    try:
        assert not paths.are_whole()
        assert ledger.first_difference(Model.forward, (model, 1), {})
    finally:
        SIZES.pop()


def test_what_the_seal_of_the_model_holds_is_left_to_it(way: str) -> None:
    """Attributes of modules: thousands in a large model, of which nothing is kept here."""
    model = Model()
    ledger = ledger_of(
        [guard("EQUALS_MATCH", "self._modules['linear'].in_features", 2)],
        {},
        Model.forward,
        (model, 1),
        {},
    )
    paths = paths_of(ledger, model)
    model.linear.in_features = 3
    assert paths.are_whole()
    assert "3" in ledger.first_difference(Model.forward, (model, 1), {})


def test_a_way_that_leads_nowhere_is_never_whole(way: str) -> None:
    """Then the ledger is asked at each call, and says so."""
    model = Model()
    ledger = made(model)
    del model.opaque.value
    assert not paths_of(ledger, model).are_whole()


@wraps(helper)
def like_helper(x: Any) -> Any:
    return x


def test_a_function_is_known_by_where_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper that claims another's name is another."""
    model = Model()
    guards = [guard("CLOSURE_MATCH", "G['helper']", helper)]
    ledger = ledger_of(guards, {}, Model.forward, (model, 1), {})
    monkeypatch.setitem(globals(), "helper", like_helper)
    assert "like_helper" in ledger.first_difference(Model.forward, (model, 1), {})


def test_tensors_that_are_one_must_stay_one() -> None:
    """A graph has one input for both, and takes it from the first place."""
    model = Model()
    model.sequence = [model.linear.weight]  # type: ignore[list-item]
    source = SimpleNamespace(name="L['self']._modules['linear']._parameters['weight']")
    twice = guard("DUPLICATE_INPUT", "self.sequence[0]", model.linear.weight)
    twice.orig_guard = SimpleNamespace(create_fn=SimpleNamespace(keywords={"source_b": source}))
    ledger = ledger_of([twice], {}, Model.forward, (model, 1), {})
    assert ledger.first_difference(Model.forward, (model, 1), {}) == ""
    model.sequence[0] = nn.Parameter(torch.ones(2, 2))  # type: ignore[call-overload]
    assert ledger.first_difference(Model.forward, (model, 1), {})


def reading() -> str:
    return os.environ.get("TCCACHE_TEST_READ", "")


@pytest.mark.parametrize("before", [None, "1"])
def test_a_variable_of_the_environment_is_a_constant(
    way: str, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """Also one that was not there, of which torch makes no guard."""
    if before is not None:
        monkeypatch.setenv("TCCACHE_TEST_READ", before)
    model, code = Model(), reading.__code__
    guards = [guard("TYPE_MATCH", "G['os'].environ._data", {})]
    ledger = ledger_of(guards, {}, Model.forward, (model, 1), {}, traced=[code])
    paths = paths_of(ledger, model)
    assert paths.are_whole()
    monkeypatch.setenv("TCCACHE_TEST_OTHER", "1")
    assert ledger.first_difference(Model.forward, (model, 1), {}) == ""
    monkeypatch.setenv("TCCACHE_TEST_READ", "2")
    assert not paths.are_whole()
    assert ledger.first_difference(Model.forward, (model, 1), {})


def test_what_was_not_there_must_not_come(way: str) -> None:
    """An attribute, and a key of a dictionary, that code has looked for in vain."""
    model = Model()
    attribute = guard("HASATTR", "self.opaque", model.opaque)
    attribute.orig_guard = SimpleNamespace(create_fn=SimpleNamespace(keywords={"attr": "more"}))
    key = guard("DICT_NOT_CONTAINS", "G['TABLE']", TABLE)
    key.orig_guard = SimpleNamespace(create_fn=SimpleNamespace(keywords={"key": "b"}))
    ledger = ledger_of([attribute, key], {}, Model.forward, (model, 1), {})
    paths = paths_of(ledger, model)
    assert paths.are_whole()
    model.opaque.more = 1  # type: ignore[attr-defined]
    assert not paths.are_whole()
    assert ledger.first_difference(Model.forward, (model, 1), {})
    del model.opaque.more  # type: ignore[attr-defined]
    paths = paths_of(ledger, model)
    TABLE["b"] = 1
    try:
        assert not paths.are_whole()
        assert ledger.first_difference(Model.forward, (model, 1), {})
    finally:
        del TABLE["b"]


def test_no_ledger_is_made_for_a_call_with_the_model_s_own_tensor() -> None:
    """Which of the two a later call means could not be told."""
    model = Model()
    with pytest.raises(OwnArgument):
        ledger_of([], {}, Model.forward, (model, model.linear.weight), {})


def test_what_cannot_be_looked_up_is_left_out() -> None:
    """Guards of other kinds, torch's own names, and values that a ledger does not hold."""
    guards = [
        guard("GRAD_MODE", "", None),
        guard("CONSTANT_MATCH", "___stack", 1),
        guard("CONSTANT_MATCH", "G['__unknown']", 1),
        guard("CONSTANT_MATCH", "self.missing", 1),
        guard("CONSTANT_MATCH", "self.count", 7),
        guard("CONSTANT_MATCH", "not an expression", 1),
    ]
    model = Model()
    assert ledger_of(guards, {}, Model.forward, (model, 1), {}).expressions == ()


def test_a_ledger_comes_back_from_json() -> None:
    """With its code beside it, as a unit keeps it."""
    model = Model()
    ledger = made(model)
    told: Any = ledgers.to_json(ledger)
    canonical_json(told)
    again = ledgers.from_json(ledger.code, told)
    assert again == ledger
    assert again.first_difference(Model.forward, (model, 1), {}) == ""


def test_a_ledger_says_which_attributes_it_asks_for() -> None:
    """By the last part of a name."""
    ledger = made(Model())
    assert ledger.mentions(["opaque.value"])
    assert ledger.mentions(["count"])
    assert not ledger.mentions(["weight"])
