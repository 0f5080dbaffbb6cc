"""Records of outputs compared: what differs is named, what is only rounded is not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cachesvc.core.outputs import (
    OutputRecord,
    TensorRecord,
    Tolerance,
    differences,
    find,
    rounded,
)

INF, NAN = math.inf, math.nan
TENSOR = TensorRecord("output", "float32", (2, 2), 2.0, (0.5, -2.0, 1.0, 0.0))
RECORD = OutputRecord("(float32[4])", "ab" * 32, "cd" * 32, (TENSOR,), 1)


def of(*tensors: TensorRecord, leaves: int = 1) -> OutputRecord:
    return replace(RECORD, tensors=tensors, leaves=leaves)


def sampled(*values: float, dtype: str = "float32", scale: float = 2.0) -> OutputRecord:
    return of(replace(TENSOR, dtype=dtype, scale=scale, sample=values))


def test_equal() -> None:
    """An output is as recorded if all its numbers are."""
    assert differences(RECORD, RECORD) == ()


@pytest.mark.parametrize(
    ("dtype", "apart", "same"),
    [
        ("float64", 1e-7, True),
        ("float64", 1e-6, False),
        ("float32", 1e-4, True),
        ("float32", 1e-3, False),
        ("bfloat16", 3e-2, True),
        ("float16", 5e-2, False),
        ("float8_e4m3fn", 0.3, True),
        ("complex64", 1e-3, False),
        ("int64", 1.0, False),
        ("bool", 1.0, False),
    ],
)
def test_tolerance_by_dtype(dtype: str, apart: float, same: bool) -> None:
    """What a dtype cannot tell apart is equal, relative to the tensor's greatest value; integers
    and booleans are exact."""
    before, after = (sampled(value, dtype=dtype) for value in (1.0, 1.0 + apart))
    assert (differences(before, after) == ()) is same


def test_tolerance_that_was_given() -> None:
    """It holds for every floating dtype, and for no other."""
    given = Tolerance(0.25)
    for dtype in ("float64", "bfloat16", "float"):
        assert differences(sampled(1.0, dtype=dtype), sampled(1.5, dtype=dtype), given) == ()
    assert differences(sampled(1.0, dtype="int64"), sampled(2.0, dtype="int64"), given)


def test_tolerance_of_the_record() -> None:
    """A build that was allowed more is not found wrong by every start after it; who asks for less
    gets less."""
    loose = replace(sampled(1.0), tolerance=0.25)
    assert differences(loose, sampled(1.4)) == ()
    assert differences(loose, sampled(1.6))
    assert differences(loose, sampled(1.4), Tolerance(1e-3))


def test_tf32() -> None:
    """Where float32 may be multiplied with fewer digits, more is allowed, for float32 only."""
    assert Tolerance(tf32=True).of("float32") == 1e-2
    assert Tolerance(tf32=True).of("float64") == Tolerance().of("float64")
    assert Tolerance(1e-5, tf32=True).of("float32") == 1e-5


def test_a_tensor_of_tiny_numbers() -> None:
    """Sums that cancel out leave other rests in another order: these are no difference."""
    assert differences(sampled(1e-9, scale=1e-9), sampled(-2e-9, scale=2e-9)) == ()


def test_what_is_no_number() -> None:
    """NaN equals NaN and an infinity itself; anything else beside them differs."""
    odd = sampled(NAN, INF, -INF)
    assert differences(odd, odd) == ()
    for values in ((0.0, INF, -INF), (NAN, 1e30, -INF), (NAN, INF, INF)):
        assert differences(odd, sampled(*values))
        assert differences(sampled(*values), odd)


def test_sentences_name_path_and_both_values() -> None:
    """Somebody who reads the sentence knows where to look."""
    (said,) = differences(sampled(1.0, 0.25), sampled(1.0, 0.75))
    assert said == (
        "output has 0.75 at its sample 1 where 0.25 was recorded (at most 0.0002 apart are allowed)"
    )
    (said,) = differences(sampled(1.0, scale=2.0), sampled(1.0, scale=9.0))
    assert "9 as its greatest absolute value where 2 was recorded" in said
    other = replace(TENSOR, shape=(4, 2), dtype="float16")
    assert differences(RECORD, of(other)) == ("output is float16[4, 2] where float32[2, 2] was",)


def test_structure() -> None:
    """A tensor that is missing or new is named; of many, their number counts too."""
    state = replace(TENSOR, path="output.state")
    assert differences(of(TENSOR, state), of(TENSOR)) == ("output.state is missing",)
    assert differences(of(TENSOR), of(TENSOR, state)) == ("output.state was not recorded",)
    assert differences(of(TENSOR, leaves=70), of(TENSOR, leaves=71)) == (
        "the output holds 71 values where 70 were recorded",
    )


def test_values_that_depend_on_random_numbers() -> None:
    """Of them only dtype and shape were recorded, so only these are compared."""
    unknown = of(replace(TENSOR, scale=0.0, sample=()))
    assert differences(unknown, RECORD) == ()
    assert differences(unknown, of(replace(TENSOR, shape=(3,))))


def test_find() -> None:
    """The record of just this call, these inputs and weights; one that does not know its inputs
    or weights is for nobody; of several the last counts."""
    key = {"call": RECORD.call, "inputs": RECORD.inputs, "weights": RECORD.weights}
    later = replace(RECORD, leaves=9)
    assert find([RECORD, later], **key) is later
    assert find([RECORD], **{**key, "weights": "ef" * 32}) is None
    unknown = replace(RECORD, inputs="")
    assert find([unknown], **{**key, "inputs": ""}) is None


def test_rounded() -> None:
    """Nine digits tell every float32 apart, and reading back changes nothing."""
    assert rounded(0.1 + 0.2) == 0.3
    assert rounded(rounded(1 / 3)) == rounded(1 / 3)
    assert math.isnan(rounded(NAN))
    assert rounded(-INF) == -INF
