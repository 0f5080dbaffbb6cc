"""Which code is meant by a key, a name, or the start of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachesvc.core.errors import UsageError
from cachesvc.core.graph import Contents, Graph, Kernel

READABLE = "fx"
"""The form of a graph that is no file: its operators and all shapes, as torch prints them."""

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Code:
    """The text of one graph or kernel, and the entry that it was read from."""

    key: str
    name: str
    form: str
    path: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            "form": self.form,
            "path": self.path,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing whose code can be asked for.

    `key` means this and nothing else, `aliases` what else it is called. `forms` maps each form of
    its code to an entry, the form to print unasked first. `source` is the key of what stands for
    it: for a build its source, for a kernel without a unit of its own, named by `kernel`, the
    graph in whose module it is.
    """

    key: str
    name: str
    aliases: tuple[str, ...]
    forms: tuple[tuple[str, str], ...]
    note: str = ""
    source: str | None = None
    kernel: str | None = None

    @property
    def title(self) -> str:
        return f"{self.key} ({self.note})" if self.note else self.key

    def may_be(self, start: str) -> bool:
        return any(alias.startswith(start) for alias in (self.key, *self.aliases))

    def is_called(self, name: str) -> bool:
        return name == self.key or name in self.aliases


def choices(contents: Contents) -> tuple[Choice, ...]:
    """Everything in a bundle that has code to show."""
    graphs = (_of_graph(graph) for graph in contents.graphs)
    names: dict[str, set[str]] = {}
    for use in (use for graph in contents.graphs for use in graph.kernels):
        for unit in use.units:
            names.setdefault(unit, set()).add(use.name)
    kernels = (_of_kernel(k, names.get(k.key, ())) for k in contents.kernels if k.forms)
    inlined = (choice for graph in contents.graphs for choice in _inlined(graph))
    return (*graphs, *kernels, *inlined)


def merged(found: Iterable[Choice]) -> tuple[Choice, ...]:
    """The choices of several bundles: one for each key, the first, called by the names of all."""
    by_key: dict[str, Choice] = {}
    for choice in found:
        held = by_key.setdefault(choice.key, choice)
        by_key[choice.key] = replace(held, aliases=(*held.aliases, *choice.aliases))
    return tuple(by_key.values())


def choose(among: Sequence[Choice], asked: str) -> tuple[Choice, str]:
    """The one choice that `asked` means, and the form of it.

    `asked` is a unit's key, the last part of one, an entry's path, a kernel's name, or the start
    of any, with `.FORM` behind it for another form than the first. A whole name wins over the
    start of one, and a kernel's source stands for all its builds. Raises UsageError, naming what
    there is, if that is nothing or not one.
    """
    start, form = asked, ""
    found = _meant(among, start, form)
    if not found and "." in asked[1:]:
        start, _, form = asked.rpartition(".")
        found = _meant(among, start, form)
    if not found:
        raise UsageError(_no_code(among, asked))
    if len(found) > 1:
        raise UsageError(
            f"{asked!r} may mean {len(found)} of what has code: give more of a key, one of"
            f" {_listed(choice.title for choice in found)}"
        )
    return found[0], form or found[0].forms[0][0]


def _meant(among: Sequence[Choice], start: str, form: str) -> list[Choice]:
    able = [choice for choice in among if not form or form in dict(choice.forms)]
    whole = [choice for choice in able if choice.is_called(start)]
    found = whole or [choice for choice in able if choice.may_be(start)]
    keys = {choice.key for choice in found}
    return [choice for choice in found if choice.source not in keys]


def _no_code(among: Sequence[Choice], asked: str) -> str:
    if not among:
        return f"there is no code for {asked!r}: the bundle holds no graph and no kernel"
    start, _, form = asked.rpartition(".")
    others = [choice for choice in among if start and choice.may_be(start)]
    if others:
        forms = sorted({name for choice in others for name, _ in choice.forms})
        return f"{start!r} has no code in the form {form!r}: it has {', '.join(forms)}"
    return (
        f"there is no code for {asked!r}: give a key, a kernel's name, or the start of one:"
        f" {_listed(choice.name for choice in among)}"
    )


def _listed(names: Iterable[str]) -> str:
    known = list(dict.fromkeys(names))
    more = len(known) - _SHOWN
    return ", ".join(known[:_SHOWN]) + (f", and {more} more" if more > 0 else "")


def _of_graph(graph: Graph) -> Choice:
    keys = (graph.key, *graph.entries, *((graph.module,) if graph.module else ()))
    path = graph.entries[0]
    forms = (("py", path), (READABLE, path))
    return Choice(path, graph.key, tuple(_with_last_parts(keys)), forms, graph.kind)


def _of_kernel(kernel: Kernel, names: Iterable[str]) -> Choice:
    """A kernel by its key, and by every name that a graph has for it."""
    aliases = (*_with_last_parts((kernel.key,)), kernel.name, *sorted(names))
    note = f"{kernel.name}, {kernel.language}"
    return Choice(kernel.key, kernel.name, aliases, kernel.forms, note, kernel.source)


def _inlined(graph: Graph) -> Iterator[Choice]:
    """The kernels of a graph whose units the bundle does not hold: a mega-cache has only graphs."""
    path = graph.entries[0]
    for use in graph.kernels:
        if not use.units:
            forms = (("cpp" if use.name.startswith("cpp") else "py", path),)
            key = f"{graph.key}:{use.name}"
            yield Choice(key, use.name, (use.name,), forms, source=path, kernel=use.name)


def _with_last_parts(keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        yield key
        yield key.rpartition("/")[2]
