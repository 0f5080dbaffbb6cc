"""The Python modules that Inductor generates for a graph, read as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_KIND = re.compile(r"^# AOT ID: \['\d+_(forward|backward|inference)'\]", re.MULTILINE)
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\((.*)$", re.MULTILINE)
_ORIGINAL = "Original ATen: ["
_PATH = "# kernel path: "
_CALL = re.compile(
    r"\b(?:extern_kernels|torch\.ops\.\w+|aten|inductor_ops)\.([A-Za-z_]\w*)(?:\.\w+)?\("
)
_QUOTES = "'''"


@dataclass(frozen=True, slots=True)
class Generated:
    """One kernel in a module: its name, the operators fused into it, its code, and the stem that
    its code was written to, where the module says so."""

    name: str
    operators: tuple[str, ...]
    code: str
    stem: str | None


def kind(module: str) -> str:
    """`forward`, `backward` or `inference`; empty if the module does not say."""
    found = _KIND.search(module)
    return found[1] if found else ""


def kernels(module: str) -> tuple[Generated, ...]:
    """The kernels that a module defines, in its order."""
    return tuple(_kernels(module))


def _kernels(module: str) -> Iterator[Generated]:
    end = 0
    for found in _KERNEL.finditer(module):
        opening = module.find(_QUOTES, found.start(2), found.end() + 1)
        closing = module.find(_QUOTES, opening + len(_QUOTES)) if opening >= 0 else -1
        if found.start() < end or closing < 0:
            continue
        comment = _comment_above(module, end, found.start())
        code = module[opening + len(_QUOTES) : closing]
        yield Generated(found[1], _operators(comment), code, _stem(comment))
        end = closing


def _comment_above(module: str, begin: int, end: int) -> str:
    """The lines of comment that stand right above a definition."""
    lines: list[str] = []
    for line in reversed(module[begin:end].splitlines()):
        if not line.startswith("#"):
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _operators(comment: str) -> tuple[str, ...]:
    listed, _, _ = comment.partition(_ORIGINAL)[2].partition("]")
    names = listed.partition("\n")[0].split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _stem(comment: str) -> str | None:
    paths = [line for line in comment.splitlines() if line.startswith(_PATH)]
    return paths[0].rpartition("/")[2].partition(".")[0] if paths else None


def library_calls(module: str) -> tuple[tuple[str, int], ...]:
    """What a module calls beside its kernels, such as `addmm`, with the number of places."""
    _, _, body = module.rpartition("async_compile.wait(")
    body, _, _ = body.partition("\ndef benchmark_compiled_module")
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("#"))
    return counted(name for line in lines for name in _CALL.findall(line))


def counted(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Each name with how often it comes, the most frequent first."""
    return tuple(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
