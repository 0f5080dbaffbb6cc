"""Code objects as bytes, also those that hold constants which Python's own code never has.

Dynamo puts devices, dtypes and enumerations among the constants of its code; `marshal` knows none
of them, so each stands there pickled.
"""

from __future__ import annotations

import marshal
import pickle
from types import CodeType
from typing import Any

_PICKLED = "cachesvc.pickled"


def dump(codes: tuple[CodeType, ...]) -> bytes:
    """The bytes of code objects. Raises ValueError for constants that cannot be pickled either."""
    return marshal.dumps(tuple(_with_constants(code, _packed) for code in codes))


def load(data: bytes) -> tuple[CodeType, ...]:
    """What `dump` was given. Raises ValueError for bytes that hold no code."""
    try:
        codes = marshal.loads(data)  # noqa: S302 - trusted by whoever has brought it
    except (EOFError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(codes, tuple) or not all(isinstance(code, CodeType) for code in codes):
        raise ValueError("there is no code")
    return tuple(_with_constants(code, _unpacked) for code in codes)


def _with_constants(code: CodeType, change: Any) -> CodeType:
    constants = tuple(
        _with_constants(item, change) if isinstance(item, CodeType) else change(item)
        for item in code.co_consts
    )
    return code.replace(co_consts=constants)


def _packed(constant: Any) -> object:
    """A constant, pickled if marshal does not know it.

    It must be equal in another process: no container that others may hold, too, and no object that
    is itself alone.
    """
    try:
        hash(_parts(constant))
    except TypeError as error:
        raise _unkept(constant) from error
    try:
        marshal.dumps(constant)
    except ValueError:
        return (_PICKLED, _pickled(constant))
    return constant


def _pickled(constant: Any) -> bytes:
    try:
        data = pickle.dumps(constant)
        if pickle.loads(data) == constant:  # noqa: S301 - its own bytes
            return data
    except Exception as error:  # an object may raise anything when it is pickled
        raise _unkept(constant) from error
    raise _unkept(constant)


def _unkept(constant: object) -> ValueError:
    return ValueError(f"a constant of the code cannot be kept: it is a {type(constant).__name__}")


def _parts(constant: Any) -> Any:
    """A slice by its parts: Python hashes slices from 3.12 on."""
    if isinstance(constant, slice):
        return constant.start, constant.stop, constant.step
    return constant


def _unpacked(constant: object) -> object:
    if isinstance(constant, tuple) and len(constant) == 2 and constant[0] == _PICKLED:
        return pickle.loads(constant[1])  # noqa: S301 - as above
    return constant
