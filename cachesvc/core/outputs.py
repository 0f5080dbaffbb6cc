"""Records of outputs: enough numbers of each tensor to notice a wrong result, and no more."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cachesvc.core.digest import DIGEST
from cachesvc.core.fields import Extra, Fields, with_extra

MAX_SAMPLES = 16
MAX_TENSORS = 64

FLOOR = 1e-2
"""Tensors of a smaller scale are compared as if it were this: below is where sums cancel out."""

TEXT, INTEGER, BOOL, FLOAT = "str", "int", "bool", "float"
"""What stands in place of a dtype for a plain Python value."""

_THIRTY_TWO = ("float32", "complex64", FLOAT)
_RELATIVE = {
    **dict.fromkeys(("float64", "complex128"), 1e-7),
    **dict.fromkeys(_THIRTY_TWO, 1e-4),
    **dict.fromkeys(("bfloat16", "float16", "complex32"), 2e-2),
}
_TF32 = 1e-2
_COARSE = 0.2
_FLOATING = re.compile(r"float.*|bfloat16|complex.*")
_NUMBER = re.compile(r"-?(\d{1,40}(\.\d{1,40})?(e[+-]?\d{1,3})?|inf)|nan")
_DIGEST_OR_NONE = re.compile(rf"({DIGEST.pattern})?")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two results of the same calculation may lie apart.

    Relative to the greatest absolute value in the tensor: by dtype, or `relative` for all
    floating dtypes. `tf32` is for machines that may multiply float32 with fewer digits. Integers,
    booleans and text must be equal.
    """

    relative: float | None = None
    tf32: bool = False

    def of(self, dtype: str) -> float:
        """The tolerance for a dtype, as torch names it without `torch.`; 0 is exact."""
        if not _FLOATING.fullmatch(dtype):
            return 0.0
        if self.relative is not None:
            return self.relative
        usual = _RELATIVE.get(dtype, _COARSE)  # else an eight-bit float
        return (
            max(usual, _TF32) if self.tf32 and dtype in ("float32", "complex64", FLOAT) else usual
        )

    def bound(self, dtype: str, scale: float) -> float:
        """The greatest absolute difference in a tensor whose greatest absolute value is `scale`."""
        return self.of(dtype) * max(scale, FLOOR)


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """One tensor of an output, or one plain value in it.

    `scale` is the greatest absolute value of its finite elements. `sample` are the elements at
    positions 0, s, 2s, ... of the tensor made flat in row-major order, where s is a sixteenth of
    their number, rounded up; it is empty where the values depend on random numbers.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    scale: float
    sample: tuple[float, ...]
    extra: Extra = ()

    def to_json(self) -> dict[str, Any]:
        known = {
            "path": self.path,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "scale": number_text(self.scale),
            "sample": [number_text(value) for value in self.sample],
        }
        return with_extra(known, self.extra)

    @classmethod
    def read(cls, fields: Fields) -> TensorRecord:
        return cls(
            path=fields.text("path"),
            dtype=fields.text("dtype"),
            shape=fields.integers("shape"),
            scale=_number(fields.text("scale", _NUMBER)),
            sample=tuple(map(_number, fields.texts("sample", _NUMBER))),
            extra=fields.rest(),
        )


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """The output of one call, made eagerly.

    It says what a call of this signature gives with these inputs and these weights (digests; empty
    where they are not known, so that no start can compare its output). `tensors` are the first 64
    of its `leaves`. `tolerance` is what whoever made the record has asked for, relative.
    """

    call: str
    inputs: str
    weights: str
    tensors: tuple[TensorRecord, ...]
    leaves: int
    tolerance: float | None = None
    extra: Extra = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Records with equal keys are about the same output."""
        return (self.call, self.inputs, self.weights)

    @property
    def is_comparable(self) -> bool:
        """Whether it is known which inputs and weights gave this output."""
        return bool(self.inputs and self.weights)

    def to_json(self) -> dict[str, Any]:
        known: dict[str, Any] = {
            "call": self.call,
            "inputs": self.inputs,
            "weights": self.weights,
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "leaves": self.leaves,
        }
        if self.tolerance is not None:
            known["tolerance"] = self.tolerance
        return with_extra(known, self.extra)

    @classmethod
    def read(cls, fields: Fields) -> OutputRecord:
        return cls(
            call=fields.text("call"),
            inputs=fields.text("inputs", _DIGEST_OR_NONE),
            weights=fields.text("weights", _DIGEST_OR_NONE),
            tensors=fields.each("tensors", TensorRecord.read),
            leaves=fields.integer("leaves"),
            tolerance=fields.optional_number("tolerance"),
            extra=fields.rest(),
        )


def find(
    records: Iterable[OutputRecord], *, call: str, inputs: str, weights: str
) -> OutputRecord | None:
    """The youngest record (the last one) of just this call, inputs and weights."""
    wanted = (call, inputs, weights)
    found = [item for item in records if item.is_comparable and item.key == wanted]
    return found[-1] if found else None


def differences(
    recorded: OutputRecord, now: OutputRecord, tolerance: Tolerance = Tolerance()
) -> tuple[str, ...]:
    """What of an output is not as recorded: a sentence each, with its path and both values.

    A tolerance in the record takes the place of the usual one, not of one that was given.
    """
    if tolerance.relative is None:
        tolerance = replace(tolerance, relative=recorded.tolerance)
    before = {tensor.path: tensor for tensor in recorded.tensors}
    after = {tensor.path: tensor for tensor in now.tensors}
    return tuple(_differences(before, after, recorded.leaves, now.leaves, tolerance))


def _differences(
    before: dict[str, TensorRecord],
    after: dict[str, TensorRecord],
    leaves_before: int,
    leaves_after: int,
    tolerance: Tolerance,
) -> Iterator[str]:
    if leaves_before != leaves_after:
        yield f"the output holds {leaves_after} values where {leaves_before} were recorded"
    for path, tensor in before.items():
        if path not in after:
            yield f"{path} is missing"
        elif difference := _difference(tensor, after[path], tolerance):
            yield f"{path} {difference}"
    for path in after:
        if path not in before:
            yield f"{path} was not recorded"


def _difference(old: TensorRecord, new: TensorRecord, tolerance: Tolerance) -> str | None:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f"is {described(new.dtype, new.shape)} where {described(old.dtype, old.shape)} was"
    if not (old.sample and new.sample):
        return None
    bound = tolerance.bound(old.dtype, old.scale)
    for index, (a, b) in enumerate(zip(old.sample, new.sample, strict=False)):
        if not is_close(a, b, bound):
            return f"has {b:.6g} at its sample {index} where {a:.6g} was recorded{allowed(bound)}"
    if not is_close(old.scale, new.scale, bound):
        return (
            f"has {new.scale:.6g} as its greatest absolute value where {old.scale:.6g} was"
            f" recorded{allowed(bound)}"
        )
    return None


def is_close(a: float, b: float, bound: float) -> bool:
    """Whether two numbers are equal or at most `bound` apart; NaN equals NaN."""
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= bound


def allowed(bound: float) -> str:
    """What a sentence about two values ends with."""
    return f" (at most {bound:.2g} apart are allowed)" if bound else ""


def described(dtype: str, shape: tuple[int, ...]) -> str:
    """`float32[2, 4]`."""
    return f"{dtype}{list(shape)}" if shape or dtype not in (TEXT, INTEGER, BOOL, FLOAT) else dtype


def rounded(value: float) -> float:
    """The number as a record keeps it: nine digits, and one NaN, which is equal to itself."""
    return _number(number_text(value))


def number_text(value: float) -> str:
    """A number as text, because JSON has neither NaN nor infinities."""
    return f"{value:.9g}"


def _number(text: str) -> float:
    # Text that was refused is noted beside; what stands for it must only be a number.
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    return math.nan if math.isnan(value) else value
