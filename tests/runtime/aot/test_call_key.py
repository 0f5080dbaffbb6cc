"""The key of a call: equal for calls of one kind, other for all others."""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.runtime.aot.call_key import (
    MAX_LEAVES,
    NoKey,
    call_key,
    from_json,
    tensors_of,
    to_json,
)


class Choice(enum.Enum):
    ONE = 1
    TWO = 2


@dataclass
class Cache:
    length: int
    keys: torch.Tensor


class Slotted:
    __slots__ = ("__hidden", "value")

    def __init__(self, value: int, hidden: int) -> None:
        self.value = value
        self.__hidden = hidden


class Single:
    __slots__ = "value"  # noqa: PLC0205 - Python allows it, too

    def __init__(self, value: int) -> None:
        self.value = value


X = torch.ones(2, 3)


def with_field() -> torch.Tensor:
    tensor = torch.ones(2, 3)
    tensor.note = 1  # type: ignore[attr-defined]
    return tensor


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "shape": (X, torch.ones(3, 2)),
    "dtype": (X, X.double()),
    "strides": (X, torch.ones(3, 2).t()),
    "device": (X, X.to("meta")),
    "requires_grad": (X, torch.ones(2, 3, requires_grad=True)),
    "negative": (X, torch._neg_view(X)),
    "a field of a tensor": (X, with_field()),
    "None": (X, None),
    "int and bool": (1, True),
    "int and float": (1, 1.0),
    "zero and its negative": (0.0, -0.0),
    "text and bytes": ("a", b"a"),
    "list and tuple": ([X], (X,)),
    "length": ([X], [X, X.clone()]),
    "order of a dictionary": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "class of a dictionary": ({"a": 1}, OrderedDict(a=1)),
    "enum": (Choice.ONE, Choice.TWO),
    "dtype as a value": (torch.float32, torch.float16),
    "size and tuple": (torch.Size([1]), (1,)),
    "field of an object": (Cache(1, X), Cache(2, X)),
    "tensor in an object": (Cache(1, X), Cache(1, torch.ones(4))),
    "slot": (Slotted(1, 2), Slotted(3, 2)),
    "private slot": (Slotted(1, 2), Slotted(1, 3)),
    "slots said by one text": (Single(1), Single(2)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_arguments_have_another_key(name: str) -> None:
    """Whatever a graph can have baked in; also as an argument by keyword, and in a list."""
    one, other = DIFFERENT[name]
    assert call_key([one], {}) == call_key([one], {})
    assert call_key([one], {}) != call_key([other], {})
    assert call_key([], {"x": one}) != call_key([], {"x": other})
    assert call_key([[one]], {}) != call_key([[other]], {})


def test_values_of_tensors_are_no_part_of_a_key() -> None:
    """Other inputs of the same kind are served."""
    assert call_key([torch.ones(2)], {}) == call_key([torch.zeros(2)], {})


def test_form_and_order_of_arguments_are_part_of_a_key() -> None:
    """Positional or keyword, absent or None, and the order of keywords."""
    keys = [
        call_key([1], {}),
        call_key([], {"x": 1}),
        call_key([1, None], {}),
        call_key([1], {"y": None}),
        call_key([], {"x": 1, "y": 2}),
        call_key([], {"y": 2, "x": 1}),
    ]
    assert len(set(keys)) == len(keys)


def test_shared_tensors_are_part_of_a_key() -> None:
    """The same tensor twice, views of one memory at one or another place, or none."""
    memory = torch.ones(4)
    keys = [
        call_key([torch.ones(2), torch.ones(2)], {}),
        call_key([memory[:2], memory[2:]], {}),
        call_key([memory[:2], memory[1:3]], {}),
        call_key([memory[:2], memory[:2]], {}),
        call_key([x := memory[:2], x], {}),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("make", [lambda: [X], lambda: {"a": X}, lambda: Cache(1, X)])
def test_shared_containers_are_part_of_a_key(make: Any) -> None:
    """What a call writes to one of two is in the other, or is not."""
    shared = make()
    keys = [call_key([shared, shared], {}), call_key([make(), make()], {})]
    assert keys[0] == call_key([one := make(), one], {})
    assert len(set(keys)) == 2


def test_a_list_that_holds_itself_has_a_key() -> None:
    """The walk ends."""
    endless: list[Any] = [X]
    endless.append(endless)
    assert call_key([endless], {}) != call_key([[X, [X]]], {})


def local_class() -> Any:
    class Local:
        def __init__(self) -> None:
            self.value = 1

    return Local


def test_a_class_that_its_name_does_not_lead_to_has_no_key() -> None:
    """Another one may have the same name: a second one made by the same code, or the one before."""
    with pytest.raises(NoKey, match="not what has that name"):
        call_key([local_class()()], {})
    with pytest.raises(NoKey, match="not what has that name"):
        call_key([enum.Enum("Choice", "ONE", module=__name__).ONE], {})  # type: ignore[attr-defined]


def test_an_object_that_holds_itself_has_a_key() -> None:
    """The walk ends, and tells which object is met again."""
    one, other = Cache(1, X), Cache(1, X)
    one.own = one  # type: ignore[attr-defined]
    other.own = Cache(1, X)  # type: ignore[attr-defined]
    assert call_key([one], {}) != call_key([other], {})


class Sub(torch.Tensor):
    pass


UNKNOWN: dict[str, Any] = {
    "a function": lambda x: x,
    "a class": int,
    "a set": {1},
    "a complex number": 1j,
    "a subclass of tensors": torch.ones(1).as_subclass(Sub),
    "a generator": torch.Generator(),
    "a subclass of int": type("Int", (int,), {})(1),
    "very many values": [0.5] * (MAX_LEAVES + 1),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_no_key_describes_has_none(name: str) -> None:
    """Such a call is passed on, whatever it may mean."""
    with pytest.raises(NoKey):
        call_key([UNKNOWN[name]], {})


def test_a_tensor_of_the_model_is_no_argument() -> None:
    """It would be one input of the graph in place of two."""
    weight = torch.nn.Parameter(X)
    with pytest.raises(NoKey, match="tensor of the model"):
        call_key([weight], {}, {id(weight)})
    assert call_key([X], {}, {id(weight)}) == call_key([X], {})


def test_all_tensors_are_found() -> None:
    """Also those in objects, in the order of the key."""
    held, named = torch.ones(1), torch.ones(2)
    tensors = tensors_of([X, Cache(1, held)], {"z": [named]})
    assert [id(tensor) for tensor in tensors] == [id(X), id(held), id(named)]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(PLAIN, max_size=3), st.dictionaries(st.text(min_size=1), PLAIN, max_size=3))
def test_a_key_comes_back_from_json(args: list[Any], kwargs: dict[str, Any]) -> None:
    """What one process writes another finds again, with tensors, dtypes and devices, too."""
    key = call_key([*args, X, torch.bfloat16, Choice.ONE], kwargs)
    assert from_json(to_json(key)) == key
    assert hash(from_json(to_json(key))) == hash(key)


@pytest.mark.parametrize("value", [{}, {"a": 1, "b": 2}, {"dtype": "nn"}, {"what": "x"}])
def test_json_that_no_key_wrote_is_refused(value: Any) -> None:
    """A damaged unit is an error, not a key of nothing."""
    with pytest.raises(ValueError, match="no part of a key"):
        from_json([value])
