"""Code and classes: digests and names that are equal in every process and checkout.

Compiled code and not source text: it is what runs, also where a file was edited after its import,
a method was put in the place of another, or there never was a file (an interactive session,
`exec`). It takes microseconds, and comments do not count.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

from cachesvc.core.digest import Json, digest_bytes


def code_digest(code: types.CodeType) -> str:
    """A digest of compiled code and of what is nested in it.

    File, line numbers and the names of local variables do not count.
    """
    return digest_bytes(repr(_facts(code)).encode(errors="backslashreplace"))[:16]


def _facts(code: types.CodeType) -> list[Json]:
    return [
        code.co_code.hex(),
        [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags],
        [repr(name) for name in (*code.co_names, *code.co_freevars, *code.co_cellvars)],
        [_constant(value) for value in code.co_consts],
    ]


def _constant(value: object) -> Json:
    if isinstance(value, types.CodeType):
        return _facts(value)
    if isinstance(value, tuple):
        return [_constant(item) for item in value]
    if isinstance(value, frozenset):  # its order depends on the hash seed
        return [*sorted(map(repr, value))]
    return f"{type(value).__name__} {value!r}"


def class_name(kind: type) -> str:
    """The qualified name of a class."""
    return f"{module_name(kind.__module__)}.{kind.__qualname__}"


def module_name(module: object) -> str:
    """A module's name; of the main program, the name that it has where it is imported."""
    if module != "__main__":
        return str(module)
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return Path(file).stem if file else "__main__"
