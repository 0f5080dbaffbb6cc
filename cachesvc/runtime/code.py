"""The code of classes and functions as digests that do not depend on where it lies."""

from __future__ import annotations

import functools
import inspect
import marshal
import types

from cachesvc.core.digest import digest_bytes

UNREADABLE = "unreadable"


@functools.cache
def source_digest(code: object) -> str:
    """A digest of the source text of a class or function.

    Where the source cannot be read (an interactive session, `exec`, a file that is gone), the
    digest of the compiled code, without its file name and line numbers; `unreadable` where there
    is none either, as for built-in functions.
    """
    try:
        return digest_bytes(inspect.getsource(code).encode())[:16]  # type: ignore[arg-type]
    except (OSError, TypeError, IndexError, SyntaxError):
        return _compiled_digest(code)


def _compiled_digest(code: object) -> str:
    parts = [_code_bytes(part) for part in _codes(code)]
    return digest_bytes(b"".join(parts))[:16] if parts else UNREADABLE


def _codes(value: object) -> list[types.CodeType]:
    if isinstance(value, type):
        members = (value.__dict__[name] for name in sorted(value.__dict__))
        return [
            code for member in members for code in _codes(member) if not isinstance(member, type)
        ]
    function = inspect.unwrap(value) if callable(value) else value
    code = getattr(function, "__code__", None)
    return [code] if isinstance(code, types.CodeType) else []


def _code_bytes(code: types.CodeType) -> bytes:
    plain = code.replace(co_filename="", co_firstlineno=1, co_linetable=b"")
    nested = b"".join(_code_bytes(c) for c in code.co_consts if isinstance(c, types.CodeType))
    constants = [c for c in code.co_consts if not isinstance(c, types.CodeType)]
    return plain.co_code + marshal.dumps((plain.co_names, repr(constants))) + nested
