"""Outputs of calls: recorded by a few numbers of each tensor, or compared whole."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from cachesvc.core.outputs import (
    FLOAT,
    MAX_SAMPLES,
    MAX_TENSORS,
    TEXT,
    OutputRecord,
    TensorRecord,
    Tolerance,
    allowed,
    described,
    is_close,
    rounded,
)
from cachesvc.runtime.leaves import Leaf, Leaves, dtype_name, leaves, shape_of, strided


def record(
    call: str,
    inputs: str,
    weights: str,
    output: Any,
    random: Collection[str] = (),
) -> OutputRecord:
    """The record of an output. `inputs` and `weights` are digests, empty where not known.

    Of the leaves at the paths in `random` only dtype and shape are recorded.
    """
    return record_of(call, inputs, weights, leaves(output), random)


def record_of(
    call: str, inputs: str, weights: str, found: Leaves, random: Collection[str] = ()
) -> OutputRecord:
    """The same from leaves."""
    first = found[:MAX_TENSORS]
    tensors = tuple(_record(path, leaf, path in random) for path, leaf in first)
    return OutputRecord(call, inputs, weights, tensors, len(found))


def _record(path: str, leaf: Leaf, is_random: bool) -> TensorRecord:
    scale, sample = (0.0, ()) if is_random else _numbers(leaf)
    numbers = tuple(map(rounded, sample))
    return TensorRecord(path, dtype_name(leaf), shape_of(leaf), rounded(scale), numbers)


def _numbers(leaf: Leaf) -> tuple[float, tuple[float, ...]]:
    """The greatest absolute value that is finite, and up to sixteen elements, far apart."""
    if isinstance(leaf, torch.Tensor):
        if leaf.is_meta:
            return 0.0, ()
        flat = _flat(leaf)
        step = max(1, -(-len(flat) // MAX_SAMPLES))
        sample = flat[::step].to(torch.float64).tolist()
        return _scale(flat), tuple(sample)
    values = tuple(map(float, map(ord, leaf))) if isinstance(leaf, str) else (_float(leaf),)
    step = max(1, -(-len(values) // MAX_SAMPLES))
    return max((abs(v) for v in values if math.isfinite(v)), default=0.0), values[::step]


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers in a row; a complex one is two."""
    tensor = strided(tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def _scale(flat: torch.Tensor) -> float:
    if not len(flat):
        return 0.0
    if not flat.is_floating_point() or flat.itemsize == 1:
        flat = flat.to(torch.float64)
    return float(flat.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max())


def tolerance(relative: float | None = None) -> Tolerance:
    """The tolerance in this process: by dtype, or `relative` for all floating dtypes."""
    return Tolerance(relative, tf32=_may_use_tf32())


def _may_use_tf32() -> bool:
    if not torch.cuda.is_available():
        return False
    try:
        convolutions = bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # where it was set by its newer name, torch refuses to read this one
        convolutions = True
    return convolutions or torch.get_float32_matmul_precision() != "highest"


def compare(expected: Any, actual: Any, relative: float | None = None) -> tuple[str, ...]:
    """What of a whole output is not as expected: a sentence each, with its path and both values.

    Equal are outputs of the same structure, dtypes and shapes whose numbers lie apart by no more
    than `tolerance(relative)` allows.
    """
    return compare_leaves(leaves(expected), leaves(actual), tolerance(relative))


def compare_leaves(
    expected: Leaves, actual: Leaves, limit: Tolerance, random: Collection[str] = ()
) -> tuple[str, ...]:
    """The same for leaves; those at the paths in `random` need only be finite where expected."""
    return tuple(_differences(dict(expected), dict(actual), limit, random))


def _differences(
    expected: Mapping[str, Leaf], actual: Mapping[str, Leaf], limit: Tolerance, random: Any
) -> Iterator[str]:
    for path, leaf in expected.items():
        if path not in actual:
            yield f"{path} is missing"
        elif difference := _difference(leaf, actual[path], limit, path in random):
            yield f"{path} {difference}"
    for path in actual:
        if path not in expected:
            yield f"{path} is there and should not be"


def _difference(expected: Leaf, actual: Leaf, limit: Tolerance, is_random: bool) -> str | None:
    facts = [(dtype_name(leaf), shape_of(leaf)) for leaf in (expected, actual)]
    if facts[0] != facts[1] and facts[0][0] != TEXT:
        return f"is {described(*facts[1])} and should be {described(*facts[0])}"
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return _plain_difference(expected, actual, limit, is_random)
    if expected.is_meta or actual.is_meta:
        return None
    old, new = _flat(expected), _flat(actual).to(expected.device)
    if is_random:
        return _not_finite(old, new)
    return _tensor_difference(old, new, limit, expected)


def _plain_difference(expected: Any, actual: Any, limit: Tolerance, is_random: bool) -> str | None:
    if isinstance(expected, float) and isinstance(actual, float):
        bound = limit.bound(FLOAT, abs(expected)) if math.isfinite(expected) else 0.0
        if is_random:
            lost = math.isfinite(expected) and not math.isfinite(actual)
            return f"is {actual} and should be finite" if lost else None
        if not is_close(expected, actual, bound):
            return f"is {actual:.6g} and should be {expected:.6g}{allowed(bound)}"
        return None
    same = is_random or expected == actual
    return None if same else f"is {actual!r:.80} and should be {expected!r:.80}"


def _not_finite(expected: torch.Tensor, actual: torch.Tensor) -> str | None:
    lost = _is_finite(expected) and not _is_finite(actual)
    return "holds values that are not finite" if lost else None


def _is_finite(flat: torch.Tensor) -> bool:
    return bool(torch.isfinite(flat.to(torch.float64)).all())


def _tensor_difference(
    expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, shaped: torch.Tensor
) -> str | None:
    dtype = dtype_name(shaped)
    bound = limit.bound(dtype, _scale(expected))
    if expected.is_floating_point():
        apart = _apart(expected.to(torch.float64), actual.to(torch.float64))
        wrong = apart > bound
    else:  # not as doubles, which hold no more than 53 bits of them
        wrong = expected != actual
        apart = wrong.to(torch.float64)
    if not bool(wrong.any()):
        return None
    worst = int(apart.argmax())
    where = f" at {_index(worst, shaped)}" if len(expected) > 1 else ""
    return (
        f"has {_shown(actual[worst])}{where} and should have {_shown(expected[worst])}"
        f"{allowed(bound)}; {int(wrong.sum())} of {len(expected)} values differ"
    )


def _apart(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """How far each number is from the other; NaN and an infinity are no way from themselves."""
    same = (old == new) | (old.isnan() & new.isnan())
    return (old - new).abs().nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(same, 0.0)


def _index(position: int, shaped: torch.Tensor) -> list[int]:
    shape = (*shaped.shape, 2) if shaped.is_complex() else tuple(shaped.shape)
    index: list[int] = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.insert(0, rest)
    return index[: len(shaped.shape)]


def _shown(value: torch.Tensor) -> str:
    number = value.item()
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def distance(expected: Leaves, actual: Leaves) -> float | None:
    """The greatest absolute difference between tensors of one path and shape; None without any."""
    others = dict(actual)
    pairs = ((leaf, others.get(path)) for path, leaf in expected)
    found = [
        float(_apart(_flat(old).double(), _flat(new).double().to(old.device)).max())
        for old, new in pairs
        if isinstance(old, torch.Tensor)
        and isinstance(new, torch.Tensor)
        and old.shape == new.shape
        and old.numel()
    ]
    return max(found, default=None)


def inputs_digest(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A digest of all that a call is given: every byte of its tensors, and the plain values."""
    digest = hashlib.sha256()
    for path, leaf in leaves((list(args), dict(kwargs)), "call"):
        digest.update(f"{path} {dtype_name(leaf)} {list(shape_of(leaf))}\n".encode())
        if isinstance(leaf, torch.Tensor):
            if leaf.is_meta:
                return ""
            digest.update(_raw(strided(leaf)).cpu().numpy().tobytes())
        else:
            digest.update(repr(leaf).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes, in row-major order."""
    plain = tensor.resolve_conj().resolve_neg()
    real = torch.view_as_real(plain) if plain.is_complex() else plain
    return real.reshape(-1).contiguous().view(torch.uint8)
