"""What a bundle holds in readable form: graphs, kernels, and what they lie beside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel that a graph's generated code launches.

    `operators` are the operators that were fused into it, where the code says so. `units` are the
    keys of the units that hold it: its source, and each of its builds.
    """

    name: str
    operators: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "operators": list(self.operators),
            "units": list(self.units),
        }


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled graph under its guards, as its entry describes it.

    What an entry does not say is empty: other versions of torch write other fields.
    """

    key: str
    """The compiler's own key; graphs that differ in their guards alone share it."""
    entries: tuple[str, ...]
    """The paths of the entries that hold just this graph: in a directory, in the mega-cache."""
    bytes: int
    """The size of one such entry."""
    kind: str
    """`forward`, `backward` or `inference`; empty if unknown."""
    devices: tuple[str, ...]
    inputs: tuple[str, ...]
    """Type and shape of each input, as in `float32[8, s77]`; a symbol is a dynamic size."""
    operators: tuple[tuple[str, int], ...]
    """The operators of the graph after all passes, each with its number of calls."""
    kernels: tuple[KernelUse, ...]
    library_calls: tuple[tuple[str, int], ...]
    """What runs outside the generated kernels, each with its number of calls in the code."""
    module: str | None
    """The key of the unit that holds the generated module."""
    autograd: tuple[str, ...]
    """The keys of the AOTAutograd units that lead to this graph."""
    compile_s: float | None
    """What compiling it cost where it was made, in seconds."""
    model: str
    """The model digest of its origin."""
    created: str
    """The time of its origin, UTC."""

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "entries": list(self.entries),
            "bytes": self.bytes,
            "kind": self.kind,
            "devices": list(self.devices),
            "inputs": list(self.inputs),
            "operators": dict(self.operators),
            "kernels": [use.to_json() for use in self.kernels],
            "library_calls": dict(self.library_calls),
            "module": self.module,
            "autograd": list(self.autograd),
            "compile_s": self.compile_s,
            "origin": {"model": self.model, "created": self.created},
        }


@dataclass(frozen=True, slots=True)
class Kernel:
    """One unit that holds a kernel: its source, one build of it, or both."""

    key: str
    name: str
    language: str
    """`C++`, `Triton` (the source in Python) or `Triton build` (made for one device)."""
    bytes: int
    source: str | None
    """The key of the unit that holds its source, where that is another one."""
    graphs: tuple[str, ...]
    """The keys of the graphs that use it, or tried it while tuning."""
    forms: tuple[tuple[str, str], ...]
    """Its code, the form to read first in front: `py`, `cpp`, `ptx`, ..., and the entry of each."""

    @property
    def section(self) -> str:
        return self.key.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            "language": self.language,
            "bytes": self.bytes,
            "source": self.source,
            "graphs": list(self.graphs),
            "forms": dict(self.forms),
        }


@dataclass(frozen=True, slots=True)
class Part:
    """How many units of one kind a section holds, and their bytes."""

    section: str
    kind: str
    units: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "section": self.section,
            "kind": self.kind,
            "units": self.units,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that this version cannot read, and why. It may serve the compiler all the same."""

    path: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Contents:
    """What the bundle at one address holds."""

    name: str
    model: str
    environment: str
    graphs: tuple[Graph, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    parts: tuple[Part, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "graphs": [graph.to_json() for graph in self.graphs],
            "kernels": [kernel.to_json() for kernel in self.kernels],
            "parts": [part.to_json() for part in self.parts],
            "unreadable": [item.to_json() for item in self.unreadable],
        }
