"""Outputs: found in every structure, compared whole, recorded in a few numbers."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from cachesvc.core.outputs import MAX_SAMPLES, MAX_TENSORS, differences
from cachesvc.runtime.leaves import copied, leaves
from cachesvc.runtime.outputs import compare, inputs_digest, record, tolerance
from cachesvc.runtime.weights import weights_digest

pytestmark = pytest.mark.xdist_group("runtime")

ONES = torch.ones(2, 4)
Pair = namedtuple("Pair", "left right")


@dataclass
class Result:
    scores: torch.Tensor
    name: str


class Cache:
    """What a model gives along: state, with tensors in it."""

    def __init__(self) -> None:
        self.keys = [ONES, ONES]
        self.seen = 7
        self.model = torch.nn.Linear(2, 2)
        self.itself = self


def paths(output: Any) -> list[str]:
    return [path for path, _ in leaves(output)]


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (ONES, ["output"]),
        ((ONES, [ONES, 3]), ["output[0]", "output[1][0]", "output[1][1]"]),
        ({"a": ONES, 1: None}, ["output['a']"]),
        (OrderedDict(a=ONES), ["output['a']"]),
        (Pair(ONES, "text"), ["output.left", "output.right"]),
        (Result(ONES, "n"), ["output.scores", "output.name"]),
        (Cache(), ["output.keys[0]", "output.keys[1]"]),
        (None, []),
        (ONES.numpy(), ["output"]),
        ((True, 1, 1.5, "a"), [f"output[{n}]" for n in range(4)]),
    ],
)
def test_leaves(output: Any, found: list[str]) -> None:
    """Tensors and plain values have paths; state that a model gives along counts by its tensors,
    and neither a module in it nor what it holds of itself is looked into."""
    assert paths(output) == found


def test_a_structure_that_holds_itself() -> None:
    """It ends where it meets itself; what is there twice counts twice."""
    loop: list[Any] = [ONES]
    loop.append(loop)
    assert paths(loop) == ["output[0]"]
    inner = [ONES]
    assert paths([inner, inner]) == ["output[0][0]", "output[1][0]"]
    deep: Any = ONES
    for _ in range(20):
        deep = [deep]
    assert paths(deep) == []


def test_copies_stay_as_they_are() -> None:
    """What is written over a tensor afterwards does not reach its copy; no copy needs gradients."""
    tensor = torch.ones(3, requires_grad=True)
    ((_, kept),) = copied(tensor)
    with torch.no_grad():
        tensor.zero_()
    assert isinstance(kept, torch.Tensor)
    assert kept.tolist() == [1, 1, 1]
    assert not kept.requires_grad


@pytest.mark.parametrize(
    ("actual", "reason"),
    [
        ((ONES,), "output[1] is missing"),
        ((ONES, 1, 2), "output[2] is there and should not be"),
        ((ONES.double(), 1), "output[0] is float64[2, 4] and should be float32[2, 4]"),
        ((ONES[:1], 1), "output[0] is float32[1, 4] and should be float32[2, 4]"),
        ((ONES, 2), "output[1] is 2 and should be 1"),
        ((ONES, True), "output[1] is bool and should be int"),
        ((ONES, ONES), "output[1] is float32[2, 4] and should be int"),
        (
            (ONES + torch.eye(2, 4) * 0.5, 1),
            "output[0] has 1.5 at [0, 0] and should have 1 (at most 0.0001 apart are allowed);"
            " 2 of 8 values differ",
        ),
    ],
)
def test_compare(actual: Any, reason: str) -> None:
    """What differs is named: structure, dtype, shape, or the value that is farthest away."""
    expected = (ONES, 1)
    assert compare(expected, (ONES.clone(), 1)) == ()
    assert compare(expected, actual) == (reason,)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_difference(dtype: torch.dtype) -> None:
    """Sums in another order are equal; a thousandth of the scale is not for float32 and finer."""
    values = torch.randn(64, dtype=dtype)
    assert compare(values, values * (1 + torch.finfo(dtype).eps)) == ()
    coarse = dtype in (torch.bfloat16, torch.float16)
    assert (compare(values, values + values.abs().max() / 1000) == ()) is coarse
    assert compare(values, values + values.abs().max() / 1000, relative=0.01) == ()


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_whole_numbers_are_exact(dtype: torch.dtype) -> None:
    """Also those that a double cannot tell apart."""
    values = torch.tensor([0, 1, 1], dtype=dtype)
    assert compare(values, values.clone()) == ()
    (said,) = compare(values, torch.tensor([0, 1, 0], dtype=dtype), relative=0.9)
    assert " at [2] " in said
    large = torch.tensor([2**62])
    assert compare(large, large + 1)


def test_what_is_no_number() -> None:
    """NaN and infinities are equal to themselves at their places, and to nothing else."""
    odd = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    assert compare(odd, odd.clone()) == ()
    for other in (torch.nan_to_num(odd), odd.flip(0), torch.tensor([math.nan, 1e38, -math.inf, 1])):
        assert compare(odd, other)
    assert compare(math.nan, math.nan) == ()
    assert compare(1.0, math.nan) == ("output is nan and should be 1"
                                      " (at most 0.0001 apart are allowed)",)  # fmt: skip


@pytest.mark.parametrize(
    "odd",
    [
        torch.ones(3, dtype=torch.complex64) * 1j,
        torch.eye(3).to_sparse(),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.ones(4).to(torch.float8_e4m3fn),
        torch.ones(2, 2, device="meta"),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ],
)
def test_odd_tensors(odd: torch.Tensor) -> None:
    """Every kind of tensor can be copied, recorded and compared."""
    assert compare(odd, odd) == ()
    made = record("call f", "", "", odd)
    assert differences(made, record("call f", "", "", odd)) == ()
    assert len(copied(odd)) == 1


def test_record() -> None:
    """A record holds the elements that the format says, so that another writer makes the same."""
    values = torch.arange(100.0).reshape(10, 10).t()
    tensor, text = record("call f", "", "", {"a": values, "b": "ok"}).tensors
    assert (tensor.path, tensor.dtype, tensor.shape) == ("output['a']", "float32", (10, 10))
    assert tensor.scale == 99
    assert tensor.sample == tuple(values.flatten().tolist()[::7])
    assert len(tensor.sample) <= MAX_SAMPLES
    assert (text.dtype, text.shape, text.sample) == ("str", (2,), (111.0, 107.0))


def test_a_record_is_small() -> None:
    """However much a call gives, a few numbers of its first tensors are kept, and their count."""
    made = record("call f", "", "", [torch.randn(1000)] * 100)
    assert (len(made.tensors), made.leaves) == (MAX_TENSORS, 100)


def test_a_record_tells_a_wrong_output() -> None:
    """The record of an output holds for what is equal to it within the tolerance, and no more."""
    values = torch.randn(3, 7)
    made = record("call f", "", "", values)
    assert differences(made, record("call f", "", "", values * (1 + 1e-6)), tolerance()) == ()
    assert differences(made, record("call f", "", "", values + 0.1), tolerance())
    hidden = record("call f", "", "", values, random=["output"])
    assert differences(hidden, record("call f", "", "", values + 0.1)) == ()


def test_inputs() -> None:
    """Every byte of every argument counts, its name and its dtype; its place in memory does not."""
    batch = torch.randn(8, 8)
    known = inputs_digest((batch,), {"n": 1})
    assert known == inputs_digest([batch.t().contiguous().t()], {"n": 1})
    changed = batch.clone()
    changed[7, 7] += 1e-3
    others: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((changed,), {"n": 1}),
        ((batch,), {"n": 2}),
        ((batch,), {"n": True}),
        ((batch, 1), {}),
        ((batch.double(),), {"n": 1}),
        ((batch.view(64),), {"n": 1}),
    ]
    assert len({known, *(inputs_digest(args, kwargs) for args, kwargs in others)}) == 7
    assert inputs_digest((torch.ones(2, device="meta"),), {}) == ""


def test_weights() -> None:
    """Equal for the same weights, compiled or not, alone or several; other weights, names or
    shapes give another digest; where there are no values there is none."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    known = weights_digest(model)
    assert weights_digest(torch.compile(model)) == known
    assert weights_digest({"a": model, "b": torch.compile(model)}) == weights_digest(
        {"a": torch.compile(model), "b": model}
    )
    assert weights_digest([model]) != known

    def function(x: torch.Tensor) -> Any:
        return model(x)

    def no_weights(x: torch.Tensor) -> Any:
        return x

    assert weights_digest(function) == weights_digest(torch.compile(function))
    assert weights_digest(function) != weights_digest(no_weights)
    with torch.no_grad():
        model[0].weight += 1
    assert weights_digest(model) not in (known, "")
    assert weights_digest(torch.nn.Linear(2, 2, device="meta")) == ""
    assert weights_digest(torch.nn.LazyLinear(2)) == ""


def test_weights_of_every_kind() -> None:
    """Strides, dtypes without arithmetic, no elements, no dimensions."""
    model = torch.nn.Module()
    odd = [
        torch.ones(4, 4).t(),
        torch.tensor(True),
        torch.empty(0),
        torch.ones(3).to(torch.float8_e5m2),
        torch.ones(2, dtype=torch.complex64),
        torch.tensor([2**60]),
    ]
    for number, tensor in enumerate(odd):
        model.register_buffer(f"b{number}", tensor)
    assert len(weights_digest(model)) == 64
