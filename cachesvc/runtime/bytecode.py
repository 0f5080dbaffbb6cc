"""What compiled code names: the globals it reads, the members it may call, the state it writes.

Read off the instructions, since a source may be missing; nothing is run. What the code itself
writes (a counter, a cache) is state, not a constant: it would move a model to another address
between its start and its push.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field

_MUTATING = frozenset(
    (
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end"),
        *("pop", "popitem", "popleft", "remove", "setdefault", "update"),
    )
)
_EXTENDED = dis.opmap["EXTENDED_ARG"]
_GLOBAL_SHIFT = 1 if sys.version_info >= (3, 11) else 0
_ATTR_SHIFT = 1 if sys.version_info >= (3, 12) else 0
_READS_GLOBAL = frozenset(dis.opmap[n] for n in ("LOAD_GLOBAL", "LOAD_NAME"))
_READS_LOCAL = {
    op: name
    for name, op in dis.opmap.items()
    if name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF"))
}
_ATTRIBUTE = dis.opmap["LOAD_ATTR"]
_METHOD = dis.opmap.get("LOAD_METHOD", _ATTRIBUTE)
_CONSTANT = dis.opmap["LOAD_CONST"]
_STORE_ATTRIBUTE = dis.opmap["STORE_ATTR"]
_STORE_ITEM = frozenset(dis.opmap[n] for n in ("STORE_SUBSCR", "DELETE_SUBSCR"))
_STORE_GLOBAL = frozenset(dis.opmap[n] for n in ("STORE_GLOBAL", "DELETE_GLOBAL"))
_STORE_CELL = dis.opmap["STORE_DEREF"]
_WRITES = frozenset({_STORE_ATTRIBUTE, *_STORE_ITEM, *_STORE_GLOBAL, _STORE_CELL})
_IMPORT = dis.opmap["IMPORT_NAME"]
# An assignment such as `x.n += 1` copies its target and brings it back to the top at the end.
_SWAPS = frozenset(
    dis.opmap[n] for n in ("SWAP", "ROT_TWO", "ROT_THREE", "ROT_FOUR") if n in dis.opmap
)
_COPIES = frozenset(dis.opmap[n] for n in ("COPY", "DUP_TOP", "DUP_TOP_TWO") if n in dis.opmap)
_Instructions = list[tuple[int, int]]
_Target = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Import:
    """An import statement inside a function: module, number of dots, names taken from it."""

    module: str
    level: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Uses:
    """What a code object and those nested in it name.

    `reads` are the globals, each with the attributes taken of it at once: ("F", "gelu").
    `mentioned` are all names that could be those of members. `writes` and `changes` are what is
    assigned to and what is changed in place: ("global", name), ("cell", name), ("local", name),
    ("self", attribute) and ("any", attribute).
    """

    reads: tuple[tuple[str, ...], ...] = ()
    mentioned: frozenset[str] = frozenset()
    writes: frozenset[_Target] = frozenset()
    changes: frozenset[_Target] = frozenset()
    imports: tuple[Import, ...] = ()
    codes: tuple[types.CodeType, ...] = ()


@dataclass(slots=True)
class _Found:
    reads: dict[tuple[str, ...], None] = field(default_factory=dict)
    mentioned: set[str] = field(default_factory=set)
    writes: set[_Target] = field(default_factory=set)
    changes: set[_Target] = field(default_factory=set)
    imports: dict[Import, None] = field(default_factory=dict)
    codes: list[types.CodeType] = field(default_factory=list)


def uses(code: types.CodeType) -> Uses:
    """See `Uses`. What cannot be decoded is left out."""
    found = _Found()
    own = code.co_varnames[0] if code.co_argcount else "-"
    _look(code, own, found)
    return Uses(
        tuple(found.reads),
        frozenset(found.mentioned),
        frozenset(found.writes),
        frozenset(found.changes),
        tuple(found.imports),
        tuple(found.codes),
    )


def _look(code: types.CodeType, own: str, found: _Found) -> None:
    found.codes.append(code)
    found.mentioned.update(code.co_names)
    steps = _steps(code)
    mutates = not _MUTATING.isdisjoint(code.co_names)
    for at, (op, _) in enumerate(steps):
        if op in _READS_GLOBAL:
            _read(code, steps, at, found)
        elif op in _READS_LOCAL:
            if mutates:
                _changed_by_method(code, steps, at, own, found)
        elif op in _WRITES:
            _write(code, steps, at, own, found)
        elif op == _IMPORT:
            found.imports[_import(code, steps, at)] = None
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            _look(value, own, found)
        elif isinstance(value, str) and len(value) < 64 and value.isidentifier():
            found.mentioned.add(value)


def _import(code: types.CodeType, steps: _Instructions, at: int) -> Import:
    """`from ..name import a, b` loads the number of dots and the names before it."""
    before = [code.co_consts[arg] for op, arg in steps[max(0, at - 2) : at] if op == _CONSTANT]
    names = next((value for value in before if isinstance(value, tuple)), ())
    small = dis.opmap.get("LOAD_SMALL_INT")
    small_ints = [arg for op, arg in steps[max(0, at - 2) : at] if op == small]
    level = next((value for value in before if isinstance(value, int)), sum(small_ints))
    return Import(code.co_names[steps[at][1]], level, names)


def _write(code: types.CodeType, steps: _Instructions, at: int, own: str, found: _Found) -> None:
    op, arg = steps[at]
    if op == _STORE_ATTRIBUTE:
        found.writes.update(_assigned_attribute(code, steps, at, own))
    elif op in _STORE_ITEM:
        found.changes.update(_target(code, steps, _container(steps, at), own))
    elif op in _STORE_GLOBAL:
        found.writes.add(("global", code.co_names[arg]))
    else:
        found.writes.add(("cell", _local(code, arg)))


def _steps(code: types.CodeType) -> _Instructions:
    """Operation and argument of each instruction; inline caches, which are zero, are left out."""
    raw = code.co_code
    pairs = zip(raw[::2], raw[1::2], strict=False)
    if _EXTENDED not in raw[::2]:
        return [pair for pair in pairs if pair[0]]
    steps: _Instructions = []
    extended = 0
    for op, low in pairs:
        if op == _EXTENDED:
            extended = (extended | low) << 8
        elif op:
            steps.append((op, extended | low))
            extended = 0
    return steps


def _attribute(code: types.CodeType, step: tuple[int, int]) -> str | None:
    op, arg = step
    if op == _ATTRIBUTE:
        return code.co_names[arg >> _ATTR_SHIFT]
    return code.co_names[arg] if op == _METHOD else None


def _chain(code: types.CodeType, steps: _Instructions, at: int) -> tuple[str, ...]:
    """The attributes that are taken one after the other from what instruction `at` loads."""
    names: list[str] = []
    while (at := at + 1) < len(steps) and (name := _attribute(code, steps[at])) is not None:
        names.append(name)
    return tuple(names)


def _read(code: types.CodeType, steps: _Instructions, at: int, found: _Found) -> None:
    op, arg = steps[at]
    shift = _GLOBAL_SHIFT if dis.opname[op] == "LOAD_GLOBAL" else 0
    name = code.co_names[arg >> shift]
    chain = _chain(code, steps, at)
    if chain and chain[-1] in _MUTATING:
        found.changes.add(("global", name, *chain[:-1]))
    if name == "setattr":  # setattr(x, "name", value)
        constants = (s for s in steps[at + 1 : at + 6] if s[0] == _CONSTANT)
        values = (code.co_consts[arg] for _, arg in constants)
        found.writes.update(("any", value) for value in values if isinstance(value, str))
    whole = (name, *chain)
    found.reads[whole] = None


def _changed_by_method(
    code: types.CodeType, steps: _Instructions, at: int, own: str, found: _Found
) -> None:
    chain = _chain(code, steps, at)
    if chain and chain[-1] in _MUTATING:
        found.changes.update(_target(code, steps, at + len(chain) - 1, own))


def _assigned_attribute(
    code: types.CodeType, steps: _Instructions, at: int, own: str
) -> Iterator[_Target]:
    name = code.co_names[steps[at][1]]
    owner = at - 1
    if steps[owner][0] in _SWAPS:  # x.name += value
        while owner > 0 and steps[owner][0] not in _COPIES:
            owner -= 1
        owner -= 1
    if owner >= 0 and _loaded(code, steps[owner]) == own:
        yield "self", name


def _container(steps: _Instructions, at: int) -> int:
    """Where the expression ends whose item is stored; -1 if that is not plain to see."""
    before = at - 1
    if steps[before][0] in _SWAPS:  # x[key] += value
        while before > 0 and steps[before][0] not in _COPIES:
            before -= 1
        while before > 0 and steps[before][0] in _COPIES:
            before -= 1
    depth = 0
    while before >= 0:  # the key is what leaves one value on the stack
        op, arg = steps[before]
        try:
            depth += dis.stack_effect(op, arg if op >= dis.HAVE_ARGUMENT else None, jump=False)
        except ValueError:
            return -1
        before -= 1
        if depth == 1:
            return before
    return -1


def _target(code: types.CodeType, steps: _Instructions, end: int, own: str) -> Iterator[_Target]:
    """What the expression that ends at `end` stands for: a global, a cell, an attribute of self."""
    names: list[str] = []
    while end >= 0 and (name := _attribute(code, steps[end])) is not None:
        names.insert(0, name)
        end -= 1
    if end < 0:
        return
    op, arg = steps[end]
    if op in _READS_GLOBAL:
        shift = _GLOBAL_SHIFT if dis.opname[op] == "LOAD_GLOBAL" else 0
        yield ("global", code.co_names[arg >> shift], *names)
    elif op in _READS_LOCAL:
        local = _loaded(code, steps[end])
        if local == own and names:
            yield "self", names[0]
        elif not names:
            yield "cell" if "DEREF" in _READS_LOCAL[op] else "local", local


def _loaded(code: types.CodeType, step: tuple[int, int]) -> str:
    """The local variable that ends on top of the stack; empty for any other instruction."""
    op, arg = step
    name = _READS_LOCAL.get(op)
    if name is None:
        return ""
    if name.count("LOAD_FAST") > 1:  # two in one instruction, the second in the low bits
        arg &= 15
    return _local(code, arg) if "DEREF" in name else _fast(code, arg)


def _fast(code: types.CodeType, arg: int) -> str:
    names = code.co_varnames
    return names[arg] if arg < len(names) else _local(code, arg)


def _local(code: types.CodeType, arg: int) -> str:
    """The name of a variable that is shared with nested functions."""
    cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    names = (*code.co_varnames, *cells, *code.co_freevars)
    if sys.version_info < (3, 11):
        names = (*code.co_cellvars, *code.co_freevars)
    return names[arg] if arg < len(names) else ""
