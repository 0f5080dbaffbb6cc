"""What a bundle holds: its graphs, each with what belongs to it.

    aotautograd/KEY     names the key of each FX graph that it leads to
    fxgraph/xx/KEY      names the stem of its generated module, and the keys of its Triton builds

A kernel's source is named in the module's comments, and in C++ begins with the module's own code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cachesvc.core.address import Address
from cachesvc.core.graph import Contents, Graph, Kernel, KernelUse, Part, Unreadable
from cachesvc.core.manifest import Unit
from cachesvc.local import generated
from cachesvc.local.kernels import Held, Sources, held
from cachesvc.local.opened import Opened


def contents(address: Address, units: Sequence[Unit], opened: Sequence[Opened]) -> Contents:
    """What the units of a bundle hold; `opened` are those of their entries that were read."""
    by_path = {item.entry.path: item for item in opened}
    all_held = [held(unit, by_path) for unit in sorted(units, key=lambda unit: unit.key)]
    kernels = [item for item in all_held if item.kind == "kernel"]
    graphs = tuple(_graphs(all_held, opened, Sources(kernels)))
    return Contents(
        name=address.name,
        model=address.model,
        environment=address.environment,
        graphs=tuple(graph for graph, _ in graphs),
        kernels=tuple(_kernels(kernels, graphs)),
        parts=tuple(_parts(all_held)),
        unreadable=tuple(Unreadable(o.entry.path, o.issue) for o in opened if o.issue),
    )


def _graphs(
    units: Sequence[Held], opened: Sequence[Opened], sources: Sources
) -> Iterator[tuple[Graph, Opened]]:
    """The graphs by key, equal ones once, each with one of the entries that hold it."""
    owner = {entry.path: item for item in units for entry in item.unit.entries}
    modules = {item.label: item.unit.key for item in units if item.kind == "module"}
    leads = [
        (owner[item.entry.path].unit.key, item.names)
        for item in opened
        if owner[item.entry.path].kind == "autograd"
    ]
    for same in _copies(opened, owner):
        first = owner[same[0].entry.path]
        autograd = sorted({key for key, names in leads if first.label in names})
        yield _graph(first, same, modules, tuple(autograd), sources), same[0]


def _copies(opened: Iterable[Opened], owner: Mapping[str, Held]) -> Iterator[list[Opened]]:
    """The entries that hold graphs: those of one key with one content together, by the key."""
    copies: dict[tuple[str, str], list[Opened]] = {}
    for item in sorted(opened, key=lambda item: item.entry.path):
        if item.graph is not None:
            copies.setdefault((owner[item.entry.path].label, item.content), []).append(item)
    for group in sorted(copies, key=lambda group: group[0]):
        yield copies[group]


def _graph(
    where: Held,
    same: Sequence[Opened],
    modules: Mapping[str, str],
    autograd: tuple[str, ...],
    sources: Sources,
) -> Graph:
    facts, names = same[0].facts, same[0].names
    return Graph(
        key=where.label,
        entries=tuple(item.entry.path for item in same),
        bytes=same[0].entry.size,
        kind=generated.kind(facts.module),
        devices=facts.devices,
        inputs=facts.inputs,
        operators=facts.operators,
        kernels=tuple(
            KernelUse(kernel.name, kernel.operators, sources.units(kernel, names))
            for kernel in generated.kernels(facts.module)
        ),
        library_calls=generated.library_calls(facts.module),
        module=modules.get(facts.stem),
        autograd=autograd,
        compile_s=facts.compile_s,
        model=where.unit.origin.model,
        created=where.unit.origin.created,
    )


def _kernels(kernels: Sequence[Held], graphs: Iterable[tuple[Graph, Opened]]) -> Iterator[Kernel]:
    labels = {item.label: item for item in kernels}
    users: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    for graph, opened in graphs:
        for key, name in _used(graph, opened, labels):
            users.setdefault(key, {})[graph.key] = None
            names.setdefault(key, name)
    for item in kernels:
        key = item.unit.key
        source = labels.get(item.stem)
        yield Kernel(
            key=key,
            name=names.get(key) or item.name,
            language=item.language,
            bytes=item.unit.size,
            source=source.unit.key if source else None,
            graphs=tuple(users.get(key, ())),
            forms=(*(source.forms if source else ()), *item.forms),
        )


def _used(graph: Graph, opened: Opened, labels: dict[str, Held]) -> Iterator[tuple[str, str]]:
    """The keys of the kernels that a graph launches or tried, and the name of each, if it has one
    there: in C++ every kernel calls itself `kernel`."""
    for use in graph.kernels:
        for key in use.units:
            yield key, use.name
    for label in sorted(opened.names & labels.keys()):
        yield labels[label].unit.key, ""
        if source := labels.get(labels[label].stem):
            yield source.unit.key, ""


def _parts(units: Iterable[Held]) -> Iterator[Part]:
    groups: dict[tuple[str, str], list[int]] = {}
    for item in units:
        groups.setdefault((item.unit.section, item.kind), []).append(item.unit.size)
    for (section, kind), sizes in sorted(groups.items()):
        yield Part(section, kind, len(sizes), sum(sizes))
