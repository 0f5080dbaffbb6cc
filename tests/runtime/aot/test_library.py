"""torch itself: functions that somebody has put in the place of its own are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional

from cachesvc.runtime.aot.library import Library
from cachesvc.runtime.aot.watch import Watch

KINDS = (nn.Linear, nn.LayerNorm)


@wraps(functional.linear)
def like_linear(*args: Any) -> Any:
    return functional.linear(*args)


@wraps(functional.layer_norm)
def like_norm(*args: Any) -> Any:
    return functional.layer_norm(*args)


@contextmanager
def other_code() -> Iterator[None]:
    before = nn.Linear.forward.__code__
    nn.Linear.forward.__code__ = (lambda self, input: input).__code__
    try:
        yield
    finally:
        nn.Linear.forward.__code__ = before


CHANGES: dict[str, Callable[[], Any]] = {
    "a function of Python's": lambda: patch.object(functional, "layer_norm", like_norm),
    "a native function by Python's": lambda: patch.object(functional, "linear", like_linear),
    "a native function by another": lambda: patch.object(functional, "gelu", torch.tanh),
    "of torch": lambda: patch.object(torch, "matmul", torch.mm),
    "a function by an object": lambda: patch.object(torch, "softmax", object()),
    "a method of tensors": lambda: patch.object(torch.Tensor, "__add__", torch.Tensor.__mul__),
    "forward": lambda: patch.object(nn.Linear, "forward", nn.Identity.forward),
    "the code of forward": other_code,
    "a call": lambda: patch.object(nn.Module, "__call__", like_linear),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_replaced_function_is_seen(name: str, way: str) -> None:
    """By the digest, as another process would be found to differ, and by a watch."""
    library, watch = Library(KINDS), Watch()
    before = library.digest()
    library.watch(watch)
    watch.close()
    assert watch.is_whole()
    with CHANGES[name]():
        assert library.digest() != before
        assert not watch.is_whole()
    assert library.digest() == before
    assert watch.is_whole()


def test_new_names_that_are_no_functions_are_no_change(way: str) -> None:
    """torch's modules come into its namespace as they are imported."""
    library, watch = Library(KINDS), Watch()
    before = library.digest()
    library.watch(watch)
    watch.close()
    with patch.object(torch, "brought_later", {}, create=True):
        assert library.digest() == before
        assert watch.is_whole()


def test_the_order_of_classes_is_none() -> None:
    """A set of classes is in another order in each process."""
    assert Library(KINDS).digest() == Library(reversed(KINDS)).digest()
