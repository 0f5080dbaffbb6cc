"""Graphs and kernels read from bytes: what is understood, and that nothing is run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.address import Address
from cachesvc.core.graph import Contents
from cachesvc.core.manifest import Entry, Origin, Unit
from cachesvc.local import generated, pickles
from cachesvc.local.graphs import contents
from cachesvc.local.layout import unit_key
from cachesvc.local.megafile import Artifact
from cachesvc.local.opened import MAX_BYTES, code_in, is_read, open_entry, unopened
from cachesvc.local.pickles import scan

TIME = "2026-01-02T03:04:05.678901Z"
TRITON_KEY = "2ETZW77EG47K4BPEZWZ7MYSDDY4QAMWXLGANQJ22RCWAHOP4K6QA"
STEM, SOURCE, CPP = "cmodule", "csource", "ccpp"

TRITON_CODE = "\nimport triton\n@triton.jit\ndef triton_poi_fused_relu_0(x):\n    pass\n"
CPP_CODE = '\n#include <cpp_prefix.h>\nextern "C"  void  kernel(float* out)\n{\n}\n'
MODULE = f"""# AOT ID: ['3_backward']
import torch
async_compile = AsyncCompile()


# kernel path: /tmp/x/{SOURCE[1:3]}/{SOURCE}.py
# Topologically Sorted Source Nodes: [], Original ATen: [aten.relu, aten.add, aten.relu]
# Source node to ATen node mapping:
#   relu => relu
triton_poi_fused_relu_0 = async_compile.triton('a', '''{TRITON_CODE}''')


cpp_fused_sum_1 = async_compile.cpp_pybinding(['float*'], r'''{CPP_CODE}''')


async_compile.wait(globals())
def call(args):
    # extern_kernels.mm(in a comment)
    extern_kernels.mm(buf0, buf1, out=buf2)
    extern_kernels.mm(buf0, buf2, out=buf3)
    buf4 = torch.ops.aten._sdpa.default(buf3, 'torch.ops.aten._sdpa.default')
def benchmark_compiled_module(args):
    extern_kernels.addmm(args)
"""
TENSOR = (
    "TensorMetadata(dtype=torch.{}, shape=torch.Size([{}]), stride=(8, 1),"
    " device=device(type='{}'), layout=torch.strided)"
)
GRAPH: dict[str, Any] = {
    "cache_key": STEM,
    "source_code": MODULE,
    "inductor_post_grad_graph_str": 'def forward(self, x: "f32[4, 8][8, 1]cuda:0"): ...',
    "lines": [
        "[abc] gm: <lambda>()\n\n    a = torch.ops.aten.mm.default(x, y)\n"
        "    b = torch.ops.aten.add.Tensor(a, a)\n    c = torch.ops.aten.mm.default(b, a)",
        f"[abc] example_inputs[1]: {TENSOR.format('int64', 's77, 8', 'cpu')}",
        f"[abc] example_inputs[0]: {TENSOR.format('float32', '', 'cuda')}",
        "[abc] example_inputs[10]: ('s77',)",
        "[abc] example_inputs[2]: something else",
    ],
    "bundle": [{"kernel_hash": TRITON_KEY, "payload": b"\x7fELF" * 100}],
    "_time_taken_ns": 2_500_000_000,
}
FX = "inductor/fxgraph/gr/fgraph/hash"
FILES = {
    FX: pickle.dumps(GRAPH, 4),
    "inductor/aotautograd/akey/hash": pickle.dumps({"forward": ["fgraph", "lines"]}, 4),
    f"inductor/mo/{STEM}.py": MODULE.encode(),
    f"inductor/so/{SOURCE}.py": TRITON_CODE.encode(),
    f"inductor/cp/{CPP}.main.cpp": f"\n{CPP_CODE}\nPyInit_kernel".encode(),
    f"inductor/cp/{CPP}.main.so": b"\x7fELF",
    "inductor/pr/cprobe.cpp": b'extern "C" void __avx_chk_kernel() {}',
    "inductor/be/best.best_config": b"{}",
    f"triton/{TRITON_KEY}/__grp__triton_poi_fused_relu_0.json": b"{}",
    f"triton/{TRITON_KEY}/triton_poi_fused_relu_0.json": b"{}",
    f"triton/{TRITON_KEY}/triton_poi_fused_relu_0.ttir": b'#loc = loc("/x/csource.py":1:0)',
    f"triton/{TRITON_KEY}/triton_poi_fused_relu_0.cubin": b"\x7fELF",
    "triton/LAUNCHER/__triton_launcher.so": b"\x7fELF",
    "aot/forward/0/function": b"\x80",
    "extra/engine/file": b"",
}


def entry(path: str, data: bytes) -> Entry:
    return Entry(path, len(data), "0" * 64)


def read(files: dict[str, bytes]) -> Contents:
    """What a bundle with these files holds."""
    grouped: dict[str, list[Entry]] = {}
    for path, data in files.items():
        grouped.setdefault(unit_key(path.split("/")), []).append(entry(path, data))
    units = [Unit(key, tuple(found), Origin(TIME, "a" * 64)) for key, found in grouped.items()]
    opened = [open_entry(entry(p, data), data) for p, data in files.items() if is_read(p)]
    return contents(Address("name", "any", "e" * 64), units, opened)


def artifact(kind: str, key: str, content: bytes) -> dict[str, bytes]:
    item = Artifact(kind, key, content)
    return {item.path: item.to_bytes()}


def test_a_graph() -> None:
    """Its pickle and its module say all that is known of it."""
    other = {"inductor/aotautograd/aother/hash": pickle.dumps({"forward": "another graph"})}
    (graph,) = read(FILES | other).graphs
    assert (graph.key, graph.entries, graph.bytes) == ("fgraph", (FX,), len(FILES[FX]))
    assert (graph.kind, graph.devices, graph.compile_s) == ("backward", ("cpu", "cuda"), 2.5)
    assert graph.inputs == ("float32[]", "int64[s77, 8]", "something else", "s77")
    assert graph.operators == (("aten.mm", 2), ("aten.add", 1))
    assert graph.library_calls == (("mm", 2), ("_sdpa", 1))
    assert graph.module == f"inductor/mo/{STEM}"
    assert graph.autograd == ("inductor/aotautograd/akey",)
    assert (graph.model, graph.created) == ("a" * 64, TIME)


def test_its_kernels() -> None:
    """By the path in a comment and the stem in a build's first lines, or by the code itself."""
    (graph,) = read(FILES).graphs
    first, second = graph.kernels
    assert (first.name, first.operators) == ("triton_poi_fused_relu_0", ("aten.relu", "aten.add"))
    assert first.units == (f"inductor/so/{SOURCE}", f"triton/{TRITON_KEY}")
    assert (second.name, second.units) == ("cpp_fused_sum_1", (f"inductor/cp/{CPP}",))


def test_kernels_of_a_bundle() -> None:
    """C++ kernels have their graph's name, builds know their source, probes are none."""
    cpp, source, build = read(FILES).kernels
    assert (cpp.name, cpp.language, cpp.bytes) == ("cpp_fused_sum_1", "C++", 4 + cpp_size())
    assert (source.name, source.language) == ("triton_poi_fused_relu_0", "Triton")
    assert (build.language, build.source) == ("Triton build", source.key)
    assert {kernel.graphs for kernel in (cpp, source, build)} == {("fgraph",)}
    assert cpp.forms == (("cpp", f"inductor/cp/{CPP}.main.cpp"),)
    assert [form for form, _ in build.forms] == ["py", "ttir", "json"]
    assert build.forms[0][1] == f"inductor/so/{SOURCE}.py"


def cpp_size() -> int:
    return len(FILES[f"inductor/cp/{CPP}.main.cpp"])


def test_bytes_by_kind() -> None:
    """Every unit counts once, under its section and what it is."""
    parts = read(FILES).parts
    assert {(part.section, part.kind): part.units for part in parts} == {
        ("aot", "aot"): 1,
        ("extra", "extra"): 1,
        ("inductor", "autograd"): 1,
        ("inductor", "graph"): 1,
        ("inductor", "kernel"): 2,
        ("inductor", "module"): 1,
        ("inductor", "other"): 1,
        ("inductor", "tuning"): 1,
        ("triton", "kernel"): 1,
        ("triton", "launcher"): 1,
    }
    assert sum(part.bytes for part in parts) == sum(map(len, FILES.values()))


def test_a_mega_cache_alone() -> None:
    """Its graphs are read too; their kernels lie in the module, under no unit of their own."""
    files = artifact("inductor", "fgraph", FILES[FX]) | artifact("pgo", "key", b"not read")
    found = read(files)
    (graph,) = found.graphs
    assert (graph.key, graph.module) == ("fgraph", None)
    assert [use.units for use in graph.kernels] == [(), ()]
    assert {part.kind for part in found.parts} == {"graph", "pgo"}
    assert found.kernels == found.unreadable == ()


def test_a_graph_in_two_places_is_one() -> None:
    """The directory's copy and the mega-cache's are one graph; another set of guards is another."""
    other = pickle.dumps({**GRAPH, "guards": "s77 > 4"}, 4)
    files = FILES | artifact("inductor", "fgraph", FILES[FX])
    (graph,) = read(files).graphs
    assert [path.partition("/")[0] for path in graph.entries] == ["inductor", "megacache"]
    both = read(files | {"inductor/fxgraph/gr/fgraph/second": other}).graphs
    assert [item.key for item in both] == ["fgraph", "fgraph"]


def test_a_build_of_an_equal_source() -> None:
    """Of two equal sources Triton builds the first; the second's kernel finds the build by name."""
    moved = dict(FILES)
    moved[f"triton/{TRITON_KEY}/triton_poi_fused_relu_0.ttir"] = b'#loc = loc("/x/celse.py":1:0)'
    (graph,) = read(moved).graphs
    assert graph.kernels[0].units == (f"inductor/so/{SOURCE}", f"triton/{TRITON_KEY}")


@pytest.mark.parametrize("name", ["lines", "inductor_post_grad_graph_str", "_time_taken_ns"])
def test_what_is_not_said_is_empty(name: str) -> None:
    """Other versions write other fields: the graph is shown with what there is."""
    less = {key: value for key, value in GRAPH.items() if key != name}
    found = read({FX: pickle.dumps(less, 4)})
    assert (len(found.graphs), found.unreadable) == (1, ())
    assert len(found.graphs[0].kernels) == 2


def test_code() -> None:
    """A graph's module and its readable form, a kernel out of it, and a file's whole text."""
    fx = entry(FX, FILES[FX])
    assert code_in(fx, FILES[FX], "py", None) == MODULE
    assert code_in(fx, FILES[FX], "fx", None) == GRAPH["inductor_post_grad_graph_str"]
    assert code_in(fx, FILES[FX], "cpp", "cpp_fused_sum_1") == CPP_CODE
    long = b"x" * 10_000 + b"\xff"
    text = code_in(entry("triton/K/k.ptx", long), long, "ptx", None)
    assert text == "x" * 10_000 + "\N{REPLACEMENT CHARACTER}"


def test_code_without_shapes() -> None:
    """Where torch did not keep the graph with its shapes, the one that its key has is shown."""
    data = pickle.dumps({**GRAPH, "inductor_post_grad_graph_str": ""}, 4)
    text = code_in(entry(FX, data), data, "fx", None)
    assert text.startswith("<lambda>()\n\n    a = torch.ops.aten.mm.default(x, y)")


class Bomb:
    """Pickled, it runs a command as soon as it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def test_nothing_is_run(tmp_path: Path) -> None:
    """A pickle that runs a command is read around it: the graph is shown, the command is not run.
    Unpickled, the same bytes do run it."""
    mark = tmp_path / "mark"
    data = pickle.dumps({"before": Bomb(mark), **GRAPH, "after": Bomb(mark)}, 4)
    found = read({FX: data, "inductor/aotautograd/akey/hash": data})
    assert len(found.graphs) == 2
    assert not mark.exists()
    pickle.loads(data)
    assert mark.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a graph",
        b"\x80\x04another",
        pickle.dumps(GRAPH, 4)[:-1],
        pickle.dumps({"other": "fields"}),
        b"\x80\x04" + b"]" * 100_000 + b".",
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.",
        b"\x80\x04" + b"I" + b"9" * 100_000 + b"\n.",
        b"\x80\x04\x8b\xff\xff\xff\x7f.",
        b"\x80\x04h\x05.",
    ],
)
def test_an_unreadable_graph(data: bytes) -> None:
    """No pickle, half a pickle, a deep or lying one: named with a reason, and the rest is read."""
    spoiled = {"inductor/fxgraph/sp/fspoiled/hash": data}
    found = read(FILES | spoiled)
    assert [graph.key for graph in found.graphs] == ["fgraph"]
    (item,) = found.unreadable
    assert item.path in spoiled
    assert item.reason.startswith(("it is no pickle", "it holds no generated code"))


def test_a_spoiled_artifact() -> None:
    """An entry of the mega-cache that is no artifact is named, too."""
    (item,) = read({"megacache/inductor/fkey/0123": b"nothing"}).unreadable
    assert "is not a mega-cache artifact" in item.reason


@pytest.mark.parametrize("size", [0, 7, 100, 1000, -100, -2])
def test_half_a_graph(size: int) -> None:
    """Cut anywhere, it is unreadable: half of a graph is not shown as a whole one."""
    found = read({FX: FILES[FX][:size]})
    assert (found.graphs, len(found.unreadable)) == ((), 1)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    """Whatever lies there, reading it gives a value, of every kind of entry."""
    for path in FILES:
        open_entry(entry(path, data), data)
        open_entry(entry(path, b""), b"\x80\x04" + data + b".")
    open_entry(entry("megacache/inductor/k/0", data), Artifact("inductor", "k", data).to_bytes())


@given(st.integers(0, len(FILES[FX]) - 1), st.integers(0, 255))
def test_no_changed_byte_makes_it_raise(at: int, value: int) -> None:
    """A whole pickle with one byte changed is read as another, or named as unreadable."""
    data = bytearray(FILES[FX])
    data[at] = value
    found = read({**FILES, FX: bytes(data)})
    assert len(found.graphs) + len(found.unreadable) == 1


def test_instructions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle of endless tiny instructions is given up, not listed to its end."""
    monkeypatch.setattr(pickles, "_MAX_INSTRUCTIONS", 1000)
    with pytest.raises(ValueError, match="more than 1000 instructions"):
        scan(b"\x80\x04" + b"N" * 1001 + b".")
    assert scan(b"\x80\x04" + b"N" * 990 + b".").texts == ()


def test_of_builds_only_the_beginning_is_kept() -> None:
    """A bundle may hold thousands of builds: what names the source stands in their first lines."""
    data = b"x" * 100_000
    assert len(open_entry(entry("triton/K/k.ttir", data), data).text) == 4096


def test_large_entries_are_named() -> None:
    """What is too large to read is said with its size."""
    item = unopened(Entry(FX, MAX_BYTES + 1, "0" * 64))
    assert item.issue == f"it has {MAX_BYTES + 1} bytes; entries up to {MAX_BYTES} are read"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(protocol: int) -> None:
    """Texts, numbers and their repetitions are found however they were pickled."""
    value = [{"name": "text", "number": 300}, {"name": "number", "big": 1 << 70}, "é\ud800"]
    again = [*value, {"text": 7}]
    assert scan(pickle.dumps(again, protocol)).fields["text"] == 7
    scanned = scan(pickle.dumps(value, protocol))
    assert scanned.fields["name"] == "text"
    assert scanned.fields["number"] == 300
    assert scanned.fields["big"] == 1 << 70
    assert scanned.texts[:5] == ("name", "text", "number", "big", "é?")


def test_numbers_of_any_size_are_no_time() -> None:
    """A time that no clock can show is left out, and does not stop the rest."""
    for value in (0, -5, 1 << 2000, "soon"):
        (graph,) = read({FX: pickle.dumps({**GRAPH, "_time_taken_ns": value}, 4)}).graphs
        assert graph.compile_s is None


LINES = [
    ("# kernel path: ", 50_000, "\nk = async_compile.triton('k', '''"),
    ("# Original ATen: [", 50_000, "\nk = async_compile.triton('k', '''code''')"),
    ("k = async_compile.triton('k', '''", 10_000, "'''"),
    ("@triton.jit", 20_000, "\ndef"),
    ('extern "C" void ', 20_000, "("),
    ("extern_kernels.", 20_000, "("),
    ('loc("', 50_000, ".py"),
    ("= torch.ops.aten.", 20_000, ""),
    ("dtype=torch.int8, shape=torch.Size([", 20_000, ""),
]


@pytest.mark.parametrize(("start", "times", "end"), LINES)
@pytest.mark.timeout(20)
def test_hostile_modules_take_no_time(start: str, times: int, end: str) -> None:
    """Patterns that nearly match, many thousand times: each is looked at once."""
    text = start * times + end
    for module in (text, f"{text}\n" * 3, start + "a" * 200_000 + end):
        generated.kernels(module)
        generated.library_calls(module)
        path = {f"inductor/ab/cab{kind}": module.encode() for kind in (".py", ".cpp")}
        read({**path, FX: pickle.dumps({**GRAPH, "source_code": module}, 4)})
        lines = [f"[ab] gm: {module}", f"[ab] example_inputs[0]: {module}"]
        described = {**GRAPH, "lines": lines, "inductor_post_grad_graph_str": module}
        read({FX: pickle.dumps(described, 4)})


@pytest.mark.timeout(20)
def test_a_hostile_graph_with_many_names_takes_no_time() -> None:
    """Each of its kernels is looked for among the builds that there are, not among its names."""
    module = "".join(f"k{n} = async_compile.triton('k', '''c''')\n" for n in range(5_000))
    names = [f"name{n}" for n in range(50_000)]
    (graph,) = read({FX: pickle.dumps({"source_code": module, "names": names}, 4)}).graphs
    assert len(graph.kernels) == 5_000


def test_entries_of_an_unknown_layout() -> None:
    """A manifest may group files in its own way: every entry still has the unit that says so."""
    files = {FX: FILES[FX], "megacache": b"x", "inductor": b"x", "triton": b"x"}
    units = [Unit(p, (entry(p, d),), Origin(TIME, "any")) for p, d in files.items()]
    opened = [open_entry(entry(FX, FILES[FX]), FILES[FX])]
    found = contents(Address("name", "any", "e" * 64), units, opened)
    assert [graph.key for graph in found.graphs] == ["hash"]
    assert len(found.parts) == 4
