"""The units that hold kernels: what they are called, and what was built of what.

inductor/xx/STEM    the source of one kernel, and in C++ also what was built of it
triton/KEY          one build of a Triton kernel; its first lines name the stem of the source
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cachesvc.core.manifest import Unit
from cachesvc.local import generated
from cachesvc.local.opened import Opened

_ARTIFACTS = {"inductor": "graph", "aot_autograd": "autograd", "autotune": "tuning"}
_FOLDERS = {"fxgraph": "graph", "aotautograd": "autograd"}
_BUILT = (".cubin", ".hsaco", ".spv", ".ttir", ".json")
_BUILD_FORMS = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "json")
_TUNING = (".best_config", ".kernel_perf")
_TRITON = re.compile(r"@triton\.jit\ndef (\w+)")
_CPP = re.compile(r'extern "C"\s+\w+\s+(kernel|cpp_\w+)\s*\(')
_SOURCE = re.compile(r'loc\("([^"\n]*)\.py"')


@dataclass(frozen=True, slots=True)
class Held:
    """One unit, and what is known of it from its names and texts.

    `kind` is `graph`, `autograd`, `module`, `kernel`, `tuning`, or what else the section calls it.
    `stem` is the name of the source that a build names.
    """

    unit: Unit
    kind: str
    name: str = ""
    language: str = ""
    text: str = ""
    stem: str = ""
    forms: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """The last part of the key."""
        return self.unit.key.rpartition("/")[2]


def held(unit: Unit, opened: Mapping[str, Opened]) -> Held:
    """What a unit is; `opened` has those of its entries that were read, by path."""
    folder = unit.key.partition("/")[2].partition("/")[0]
    if unit.section == "triton":
        return _build(unit, opened)
    if unit.section == "megacache":
        return Held(unit, _ARTIFACTS.get(folder, folder))
    if unit.section == "inductor":
        kind = _FOLDERS.get(folder)
        return Held(unit, kind) if kind else _stem(unit, opened)
    return Held(unit, unit.section)


def _build(unit: Unit, opened: Mapping[str, Opened]) -> Held:
    files = {entry.path.rpartition("/")[2]: entry.path for entry in unit.entries}
    names = sorted(n for n in files if n.endswith(_BUILT) and not n.startswith("__grp__"))
    if not names:
        return Held(unit, "launcher")
    name = names[0].partition(".")[0]
    forms = ((form, files.get(f"{name}.{form}")) for form in _BUILD_FORMS)
    heads = (opened[path].text for path in files.values() if path in opened)
    stems = (found[1].rpartition("/")[2] for head in heads if (found := _SOURCE.search(head)))
    return Held(
        unit,
        "kernel",
        name,
        "Triton build",
        stem=next(stems, ""),
        forms=tuple((form, path) for form, path in forms if path),
    )


def _stem(unit: Unit, opened: Mapping[str, Opened]) -> Held:
    paths = [entry.path for entry in unit.entries]
    for path in paths:
        text = opened[path].text if path in opened else ""
        if path.endswith(".py"):
            found = _TRITON.search(text)
            if generated.kind(text) or "async_compile.wait(" in text:
                return Held(unit, "module", text=text)
            if found:
                return Held(unit, "kernel", found[1], "Triton", text, forms=(("py", path),))
        found = _CPP.search(text)
        if path.endswith(".main.cpp") or (path.endswith(".cpp") and found):
            name = found[1] if found else unit.key.rpartition("/")[2]
            return Held(unit, "kernel", name, "C++", text, forms=(("cpp", path),))
    return Held(unit, "tuning" if all(path.endswith(_TUNING) for path in paths) else "other")


class Sources:
    """The kernels of a bundle, to be found by what a generated module says of them."""

    def __init__(self, kernels: Iterable[Held]) -> None:
        self._by_label = {item.label: item for item in kernels}
        self._builds: dict[str, list[str]] = {}
        self._named: dict[str, list[str]] = {}
        for label, item in sorted(self._by_label.items()):
            if item.stem:
                self._builds.setdefault(item.stem, []).append(label)
            if item.unit.section == "triton":
                self._named.setdefault(item.name, []).append(label)
        self._texts = sorted((i.text.lstrip(), label) for label, i in self._by_label.items())

    def units(self, kernel: generated.Generated, named: Collection[str]) -> tuple[str, ...]:
        """The keys of the units that hold a kernel of a module: its source, then its builds.

        `named` are the names in the graph's pickle. Of two equal sources Triton builds one, and
        the build names that: then the builds of the kernel's name that the graph names are its.
        """
        stem = kernel.stem if kernel.stem in self._by_label else self._with_code(kernel.code)
        builds = self._builds.get(stem or kernel.stem or "") or [
            label for label in self._named.get(kernel.name, ()) if label in named
        ]
        return tuple(self._by_label[label].unit.key for label in (stem, *builds) if label)

    def _with_code(self, code: str) -> str | None:
        """The stem whose text begins with this code: of C++ no name leads to the file."""
        code = code.lstrip()
        at = bisect_left(self._texts, (code, ""))
        found = code and at < len(self._texts) and self._texts[at][0].startswith(code)
        return self._texts[at][1] if found else None
