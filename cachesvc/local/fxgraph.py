"""One compiled FX graph, described from the pickle that Inductor's cache keeps of it.

Read from what torch 2.11 and 2.13 write: the pickle holds the generated module (`source_code`), the
key of the module's file (`cache_key`), the graph as torch prints it, and the lines that its key was
made of (`_fx_graph_cache_debug_lines`), among them the graph's operators and one line for each
input. Where another version lacks one of them, what it would say is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cachesvc.local.generated import counted
from cachesvc.local.pickles import Scanned

_OPERATOR = re.compile(r"= torch\.ops\.(\w+\.\w+)(?:\.\w+)*\(")
_INPUT = re.compile(r"\[\w+\] example_inputs\[(\d{1,9})\]: (.*)", re.DOTALL)
_TENSOR = re.compile(r"dtype=torch\.(\w+), shape=torch\.Size\(\[([^\[\]]{0,1000})\]\)")
_INPUT_DEVICE = re.compile(r"device=device\(type='(\w+)'")
_SHOWN_DEVICE = re.compile(r'\]([a-z]+)(?::\d+)?"')
_SYMBOL = re.compile(r"\('(\w+)',\)")
_NANOSECONDS, _CENTURIES = 1e9, 1 << 63


@dataclass(frozen=True, slots=True)
class Facts:
    """What a graph's pickle says of it; what it does not say is empty."""

    module: str
    """The generated code."""
    readable: str
    """The graph as torch prints it: with all shapes, or else as its key was made of it."""
    stem: str
    """The stem of the file with the generated code."""
    inputs: tuple[str, ...]
    devices: tuple[str, ...]
    operators: tuple[tuple[str, int], ...]
    compile_s: float | None


def facts(scanned: Scanned) -> Facts | None:
    """The graph in a pickle, or None if it holds no generated code."""
    module = scanned.text("source_code")
    if not module:
        return None
    readable = scanned.text("inductor_post_grad_graph_str")
    lines = tuple(filter(None, map(_INPUT.fullmatch, scanned.lines("example_inputs["))))
    descriptions = [line[2] for line in sorted(lines, key=lambda line: int(line[1]))]
    definition = next(iter(scanned.lines("gm: ")), readable)
    return Facts(
        module=module,
        readable=readable or definition.partition("gm: ")[2],
        stem=scanned.text("cache_key"),
        inputs=tuple(map(_input, descriptions)),
        devices=tuple(sorted(set(_devices(descriptions, readable)))),
        operators=counted(_OPERATOR.findall(definition)),
        compile_s=_seconds(scanned.fields.get("_time_taken_ns")),
    )


def _seconds(nanoseconds: object) -> float | None:
    """None also for what is no time: a pickle can hold numbers of any size."""
    if isinstance(nanoseconds, int) and 0 < nanoseconds < _CENTURIES:
        return nanoseconds / _NANOSECONDS
    return None


def _input(description: str) -> str:
    """`float32[8, s77]` for a tensor, `s77` for a size, else what stands there, cut short."""
    tensor = _TENSOR.search(description)
    if tensor:
        return f"{tensor[1]}[{tensor[2]}]"
    symbol = _SYMBOL.fullmatch(description)
    return symbol[1] if symbol else f"{description:.80}"


def _devices(descriptions: Iterable[str], readable: str) -> Iterator[str]:
    for description in descriptions:
        yield from _INPUT_DEVICE.findall(description)
    yield from _SHOWN_DEVICE.findall(readable)
