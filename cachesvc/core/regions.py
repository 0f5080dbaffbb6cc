"""What regional compilation chose: the repeated blocks of a model, by kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cachesvc.core.digest import Json

_LAST_NUMBER = re.compile(r"(?:(.*)\.)?(\d+)((?:\..*)?)")
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Region:
    """One kind of block, compiled once for all `places` where a model holds one.

    `kind` is the class's name, `parameters` are the elements in one block's parameters. `differ`
    names the attributes in which its blocks differ, such as an index: code that reads one of them
    is traced for each block.
    """

    kind: str
    places: tuple[str, ...]
    parameters: int
    differ: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.places)

    def to_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "count": self.count,
            "places": list(self.places),
            "parameters": self.parameters,
            "differ": list(self.differ),
        }

    def __str__(self) -> str:
        of = f"{self.parameters:,} parameters each"
        differ = f", which differ in {', '.join(self.differ)}" if self.differ else ""
        return f"{self.count} x {self.kind} at {spans(self.places)}: {of}{differ}"


@dataclass(frozen=True, slots=True)
class Regions:
    """The kinds of blocks of a model that are compiled, and what is left alone.

    `model` is the class's name, `parameters` are the elements in all its parameters, each counted
    once, `outside` those that are in no region. `alone` are the outermost modules that hold no
    region and are in none; they run as they were written, and so does the code between regions.
    """

    model: str
    kinds: tuple[Region, ...]
    parameters: int
    outside: int
    alone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many blocks are compiled, of all kinds."""
        return sum(region.count for region in self.kinds)

    def to_json(self) -> dict[str, Json]:
        return {
            "model": self.model,
            "kinds": [region.to_json() for region in self.kinds],
            "parameters": self.parameters,
            "outside": self.outside,
            "alone": list(self.alone),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n  ".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self.kinds:
            yield f"no block of {self.model} repeats: nothing is compiled"
            yield "call torch.compile(model), or name blocks: compile_regions(model, classes=[...])"
            return
        kinds = "1 kind" if len(self.kinds) == 1 else f"{len(self.kinds)} kinds"
        inside = _share(self.parameters - self.outside, self.parameters)
        yield f"{self.count} blocks of {self.model}, of {kinds}: {inside} of its parameters"
        yield from map(str, self.kinds)
        if self.alone:
            left = _share(self.outside, self.parameters)
            yield f"left alone, {left} of the parameters: {_listed(self.alone)}"
        yield from self.notes


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def spans(places: Iterable[str]) -> str:
    """Paths in short: `layers.0-11` for twelve of them that follow each other."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for place in places:
        match = _LAST_NUMBER.fullmatch(place)
        if match is None:
            found[place, ""] = []
            continue
        before, number, after = match[1], int(match[2]), match[3]
        runs = found.setdefault((f"{before}." if before else "", after), [])
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ", ".join(
        f"{before}{'/'.join(map(_run, runs))}{after}" for (before, after), runs in found.items()
    )


def _run(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"
