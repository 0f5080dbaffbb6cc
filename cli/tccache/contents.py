"""The graphs and kernels of a bundle as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import cachesvc
from tccache.output import counted, size

MOST = 8
"""How many of a kind are shown unless all are asked for."""

_KEY = 12


def contents_lines(contents: cachesvc.Contents, most: int) -> Iterator[str]:
    """What a bundle holds, at most so many of a kind: graphs, kernels, and bytes by kind."""
    yield f"  graphs: {len(contents.graphs)}"
    for graph in contents.graphs[:most]:
        yield from _graph(graph, most)
    yield from _more(contents.graphs, most, "    ")
    for section in dict.fromkeys(kernel.section for kernel in contents.kernels):
        kernels = [kernel for kernel in contents.kernels if kernel.section == section]
        yield from _kernels(section, kernels, most)
    for section in dict.fromkeys(part.section for part in contents.parts):
        parts = [part for part in contents.parts if part.section == section]
        yield f"  {section} by kind: {', '.join(map(_part, parts))}"
    for item in contents.unreadable[:most]:
        yield f"  unreadable: {item.path}: {item.reason}"
    yield from _more(contents.unreadable, most, "  ")


def _graph(graph: cachesvc.Graph, most: int) -> Iterator[str]:
    compiled = f", compiled in {graph.compile_s:.1f} s" if graph.compile_s else ""
    kind = f"{graph.kind or 'graph'}{_on(graph.devices)}"
    yield f"    {graph.key[:_KEY]}: {kind}, {size(graph.bytes)}{compiled}"
    yield f"      made {graph.created} for model {graph.model[:_KEY]}"
    if graph.inputs:
        yield f"      {counted(len(graph.inputs), 'input')}: {_list(graph.inputs, most)}"
    yield from _calls("operator", graph.operators, most)
    yield from _calls("library call", graph.library_calls, most)
    for use in graph.kernels[:most]:
        fused = f": {', '.join(use.operators)}" if use.operators else ""
        yield f"      kernel {use.name}{fused}"
    yield from _more(graph.kernels, most, "      ")


def _on(devices: Sequence[str]) -> str:
    return f" on {', '.join(devices)}" if devices else ""


def _calls(noun: str, calls: Sequence[tuple[str, int]], most: int) -> Iterator[str]:
    if calls:
        total = sum(number for _, number in calls)
        names = [name if number == 1 else f"{name} x{number}" for name, number in calls]
        yield f"      {counted(total, noun)}: {_list(names, most)}"


def _kernels(section: str, kernels: Sequence[cachesvc.Kernel], most: int) -> Iterator[str]:
    """The kernels of one section, those of one name together, the largest first."""
    yield f"  kernels in {section}: {len(kernels)}, {size(_bytes(kernels))}"
    groups: dict[tuple[str, str], list[cachesvc.Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.name, kernel.language), []).append(kernel)
    ordered = sorted(groups.items(), key=lambda group: (-_bytes(group[1]), group[0]))
    for (name, language), group in ordered[:most]:
        which = group[0].key.rpartition("/")[2][:_KEY] if len(group) == 1 else f"x{len(group)}"
        yield f"    {name} ({language}, {which}): {size(_bytes(group))}"
    yield from _more(ordered, most, "    ")


def _bytes(kernels: Iterable[cachesvc.Kernel]) -> int:
    return sum(kernel.bytes for kernel in kernels)


def _part(part: cachesvc.Part) -> str:
    return f"{part.kind} {counted(part.units, 'unit')} of {size(part.bytes)}"


def _list(names: Sequence[str], most: int) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _more(items: Sequence[object], most: int, indent: str) -> Iterator[str]:
    if len(items) > most:
        yield f"{indent}and {len(items) - most} more: --all shows them"
