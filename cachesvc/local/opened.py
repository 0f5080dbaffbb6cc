"""The entries of a bundle that say something about graphs and kernels, read as data.

Nothing is unpickled, imported or run, so an entry can at worst be unreadable.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachesvc.core.code import READABLE
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Entry
from cachesvc.local import generated
from cachesvc.local.fxgraph import Facts, facts
from cachesvc.local.megafile import Artifact
from cachesvc.local.pickles import scan

MAX_BYTES = 256 << 20
"""Larger entries are not read: the largest graph known has a twentieth of that."""

_GRAPHS = ("inductor/fxgraph/", "megacache/inductor/")
_PICKLES = (*_GRAPHS, "inductor/aotautograd/", "megacache/aot_autograd/")
_MAX_NAME, _HEAD = 128, 4096


@dataclass(frozen=True, slots=True)
class Opened:
    """One entry, read: the graph, or the text, or why there is none.

    `names` are the short texts in a pickle, among them the keys of what belongs to it. `content`
    is equal for equal pickles, wherever they lie.
    """

    entry: Entry
    text: str = ""
    graph: Facts | None = None
    names: frozenset[str] = frozenset()
    content: str = ""
    issue: str = ""

    @property
    def facts(self) -> Facts:
        """The graph of an entry that holds one."""
        assert self.graph is not None  # noqa: S101 - only asked of entries with a graph
        return self.graph


def is_read(path: str) -> bool:
    """Whether an entry says something about graphs or kernels, beside its name and size."""
    if path.startswith("inductor/") and path.endswith((".py", ".cpp")):
        return True
    return path.startswith(_PICKLES) or (
        path.startswith("triton/") and path.endswith((".source", ".ttir"))
    )


def unopened(entry: Entry) -> Opened:
    """An entry that is not read for its size."""
    return Opened(entry, issue=f"it has {entry.size} bytes; entries up to {MAX_BYTES} are read")


def open_entry(entry: Entry, data: bytes) -> Opened:
    """What an entry's verified bytes say; no bytes, of whatever kind, make it raise."""
    if not entry.path.startswith(_PICKLES):
        text = data.decode("utf-8", "replace")
        return Opened(entry, text[:_HEAD] if entry.path.startswith("triton/") else text)
    try:
        pickled = _pickled(entry, data)
        scanned = scan(pickled)
    except (ValueError, IntegrityError) as error:
        return Opened(entry, issue=f"it is no pickle that can be read: {error!s:.200}")
    graph = facts(scanned)
    if graph is None and entry.path.startswith(_GRAPHS):
        return Opened(entry, issue="it holds no generated code: its form is unknown")
    names = frozenset(text for text in scanned.texts if len(text) <= _MAX_NAME and text.isalnum())
    return Opened(entry, graph=graph, names=names, content=digest_bytes(pickled))


def _pickled(entry: Entry, data: bytes) -> bytes:
    if entry.path.startswith("megacache/"):
        return Artifact.from_bytes(data, entry.path).content
    return data


def code_in(entry: Entry, data: bytes, form: str, kernel: str | None) -> str:
    """The code in an entry: its text; of a graph the module, the graph itself, or one kernel."""
    graph = open_entry(entry, data).graph
    if graph is None:
        return data.decode("utf-8", "replace")
    if kernel is not None:
        return next(k.code for k in generated.kernels(graph.module) if k.name == kernel)
    return graph.readable if form == READABLE else graph.module
