"""Code objects with constants that Python's own code never has."""

from __future__ import annotations

import marshal
from types import CodeType

import pytest
import torch

from cachesvc.runtime.aot.codes import dump, load


def _code(*constants: object) -> CodeType:
    return compile("f(1)", "<test>", "eval").replace(co_consts=constants)


@pytest.mark.parametrize(
    "constant",
    [torch.float16, torch.device("cpu"), torch.channels_last, slice(1, None), int, "text", None],
    ids=str,
)
def test_constants_come_back(constant: object) -> None:
    """Plain ones, and those of torch that marshal does not know."""
    (back,) = load(dump((_code(constant, 7),)))
    assert back.co_consts == (constant, 7)


def test_code_inside_code_comes_back() -> None:
    """A nested function may hold such constants, too."""
    (back,) = load(dump((_code(_code(torch.int8)),)))
    inner = back.co_consts[0]
    assert isinstance(inner, CodeType)
    assert inner.co_consts == (torch.int8,)


class Holder:
    """Equal to nothing but itself."""


@pytest.mark.parametrize(
    "constant",
    [{"a": 1}, [1], {1}, Holder(), lambda: 0],
    ids=["dict", "list", "set", "object", "function"],
)
def test_what_another_process_would_not_share_is_refused(constant: object) -> None:
    """Containers may be held by others, too; an object is itself alone; a lambda has no name."""
    with pytest.raises(ValueError, match="cannot be kept"):
        dump((_code(constant),))


@pytest.mark.parametrize("data", [b"", b"\x00", marshal.dumps(5), marshal.dumps((5,))])
def test_bytes_that_hold_no_code(data: bytes) -> None:
    """Are a ValueError, whatever they are."""
    with pytest.raises(ValueError, match=r".+"):
        load(data)
