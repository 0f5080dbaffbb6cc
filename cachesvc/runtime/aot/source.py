"""Inductor's generated module, reduced to what a call needs.

What Inductor writes for a graph imports its code generation, holds the source of every kernel and
parts that only measure. Of that stay the statements that the graph's function depends on; the
kernels come from libraries that were built already. The text is read as Python, nothing is guessed
from its lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType

from cachesvc.core.errors import TccacheError

_COMPILER = "async_compile"
_ENTRY = "call"
_EXTERN = "extern_kernels"
_HEAVY = ("torch._inductor", "torch._dynamo", "triton")


class NotReducible(TccacheError):
    """The generated module has something that a reduced one cannot have."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The code of the reduced module, its kernels by name with how each was compiled, and the
    names of torch's own kernels that it calls from outside."""

    code: CodeType
    kernels: tuple[tuple[str, str], ...]
    externs: tuple[str, ...]


def reduce_module(text: str) -> Reduced:
    """Reduces a generated module. Raises NotReducible where it has parts of unknown kinds."""
    tree = ast.parse(text)
    kinds = dict(_kernels(tree.body))
    kept = _needed(tree.body)
    names = _names(kept)
    imported = sorted({name for statement in kept for name in _heavy(statement)})
    if imported:
        raise NotReducible(f"the generated code imports {', '.join(imported)}")
    module = ast.Module(kept, type_ignores=[])
    code = compile(module, "<inductor>", "exec", optimize=0)
    kernels = tuple((name, kind) for name, kind in kinds.items() if name in names)
    return Reduced(code, kernels, tuple(sorted(_attributes(kept, _EXTERN))))


def _kernels(body: Iterable[ast.stmt]) -> Iterable[tuple[str, str]]:
    for statement in body:
        kind = _compiled_by(statement)
        if kind is not None and isinstance(statement, ast.Assign):
            yield from ((target.id, kind) for target in _targets(statement))


def _compiled_by(statement: ast.stmt) -> str | None:
    """The method of the compiler that a statement calls, if it is `name = async_compile.x(...)`."""
    value = getattr(statement, "value", None)
    function = getattr(value, "func", None)
    base = getattr(function, "value", None)
    if isinstance(base, ast.Name) and base.id == _COMPILER and isinstance(function, ast.Attribute):
        return function.attr
    return None


def _needed(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that `call` depends on, in order."""
    wanted, kept = {_ENTRY}, set[int]()
    for number, statement in reversed(list(enumerate(body))):
        if _defines(statement) & wanted and _compiled_by(statement) is None:
            kept.add(number)
            wanted |= _names([statement])
    return [s for n, s in enumerate(body) if n in kept and not _is_given(s)]


def _is_given(statement: ast.stmt) -> bool:
    """Whether the loader gives what the statement defines."""
    return _defines(statement) <= {_EXTERN, _COMPILER, "AsyncCompile"}


def _defines(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(n.asname or n.name).partition(".")[0] for n in statement.names}
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        return {target.id for target in _targets(statement)}
    return set()


def _targets(statement: ast.Assign) -> list[ast.Name]:
    return [target for target in statement.targets if isinstance(target, ast.Name)]


def _heavy(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        found = [str(statement.module)]
    elif isinstance(statement, ast.Import):
        found = [name.name for name in statement.names]
    else:
        found = [m for inner in _inner_imports(statement) for m in _heavy(inner)]
    return [name for name in found if name.startswith(_HEAVY)]


def _inner_imports(statement: ast.stmt) -> list[ast.stmt]:
    nodes = ast.walk(statement)
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def _names(statements: Iterable[ast.stmt]) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _attributes(statements: Iterable[ast.stmt], base: str) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == base
    }
