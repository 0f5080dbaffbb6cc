"""What bundles hold, out of a store: an H200's tree, a compiled model, the golden store, damage."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.errors import BundleNotFound, IntegrityError, UsageError
from cachesvc.core.graph import Contents
from cachesvc.local import opened
from cachesvc.local.host import read_environment
from cachesvc.start import graphs as graphs_module
from cachesvc.start.graphs import show_code, show_graphs
from cachesvc.start.push import push

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
MATMUL = "fzknt4ktepybctygumm2qg4gkwxv3jbn7o2neexujq6jrseinnkl"


@pytest.fixture(scope="module")
def h200(h200_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the tree of an H200, and with its mega-cache alone."""
    store = tmp_path_factory.mktemp("h200") / "store"
    mega = h200_tree / "mega.bin"
    trees = {"inductor_dir": h200_tree / "inductor", "triton_dir": h200_tree / "triton"}
    push("h200", store=store, mega=mega, **trees)
    push("mega", store=store, mega=mega)
    return store


@pytest.fixture(scope="module")
def tree(h200: Path) -> Contents:
    (contents,) = show_graphs("h200", store=h200)
    return contents


def test_the_graphs_of_an_h200(tree: Contents) -> None:
    """All four, with kind, device, inputs and cost; none is unreadable, each lies in two places."""
    found = {(g.kind, len(g.inputs), len(g.kernels)) for g in tree.graphs}
    assert found == {
        ("backward", 51, 12),
        ("forward", 30, 6),
        ("inference", 145, 3),
        ("inference", 2, 2),
    }
    assert tree.unreadable == ()
    for graph in tree.graphs:
        assert graph.devices == ("cuda",)
        assert [path.partition("/")[0] for path in graph.entries] == ["inductor", "megacache"]
        assert graph.module is not None
        assert len(graph.autograd) == 2
        assert graph.compile_s is not None
        assert 1 < graph.compile_s < 60
        assert graph.operators


def test_one_graph_of_an_h200(tree: Contents) -> None:
    """relu(a @ b), tuned: two operators, two kernels, and the builds that were tried."""
    (graph,) = (graph for graph in tree.graphs if graph.key == MATMUL)
    assert graph.inputs == ("float32[512, 512]", "float32[512, 512]")
    assert graph.operators == (("aten.mm", 1), ("aten.relu", 1))
    product, relu = graph.kernels
    assert (product.name, product.operators) == ("triton_tem_fused_mm_0", ("aten.mm",))
    assert (relu.name, relu.operators, len(relu.units)) == (
        "triton_poi_fused_relu_1",
        ("aten.relu",),
        13,
    )
    tried = [kernel for kernel in tree.kernels if MATMUL in kernel.graphs]
    assert len(tried) > 60


def test_the_kernels_of_an_h200(tree: Contents) -> None:
    """66 sources and 90 builds; every build of a graph's kernel knows its source."""
    counts = {(part.section, part.kind): part.units for part in tree.parts}
    assert counts["inductor", "kernel"] == 66
    assert counts["triton", "kernel"] == 90
    assert counts["megacache", "tuning"] == counts["inductor", "tuning"] == 7
    assert counts["triton", "launcher"] == 2
    assert len(tree.kernels) == 156
    known = {kernel.key for kernel in tree.kernels}
    for use in (use for graph in tree.graphs for use in graph.kernels):
        assert len(use.units) >= 2
        assert known.issuperset(use.units)
    assert all(kernel.name.startswith(("triton_", "add_kernel")) for kernel in tree.kernels)


@pytest.mark.parametrize(
    ("asked", "begins", "name"),
    [
        (f"{MATMUL[:10]}.fx", "class <lambda>(torch.nn.Module):", MATMUL),
        ("triton_poi_fused_relu_1", "\nimport triton", "triton_poi_fused_relu_1"),
    ],
)
def test_code_of_an_h200(h200: Path, asked: str, begins: str, name: str) -> None:
    """A graph's operators; a kernel's source, which stands for all its builds."""
    code = show_code("h200", asked, store=h200)
    assert code.name == name
    assert code.text.startswith(begins)


def test_code_of_a_build(h200: Path, h200_tree: Path) -> None:
    """In another form: its file, byte by byte, also beyond the part that was read before."""
    code = show_code("h200", "DOLWTF7N337.ptx", store=h200)
    assert code.name == "triton_for_fused_0"
    assert code.path.endswith("/triton_for_fused_0.ptx")
    assert len(code.text) > 10_000
    assert code.text.encode() == (h200_tree / code.path).read_bytes()


def test_a_mega_cache_alone(h200: Path) -> None:
    """The same graphs; a kernel's code is taken out of the module."""
    (contents,) = show_graphs("mega", store=h200)
    assert len(contents.graphs) == 4
    assert contents.kernels == ()
    code = show_code("mega", "triton_poi_fused_gelu_view_2", store=h200)
    assert "def triton_poi_fused_gelu_view_2(" in code.text
    assert code.path.startswith("megacache/inductor/")


def test_several_bundles(tmp_path: Path) -> None:
    """Bundles of one name are shown each; what lies in both is one thing to ask for."""
    store, tree = tmp_path / "store", tmp_path / "tree"
    (tree / "fxgraph" / "ab" / "fkey").mkdir(parents=True)
    module = {"source_code": "# AOT ID: ['0_inference']\n", "cache_key": "c"}
    (tree / "fxgraph" / "ab" / "fkey" / "hash").write_bytes(pickle.dumps(module))
    for device in ("one", "two"):
        environment = {**read_environment(), "device": device}
        push("both", store=store, inductor_dir=tree, environment=environment)
    first, second = show_graphs("both", store=store)
    assert first.environment != second.environment
    assert first.graphs[0].key == second.graphs[0].key == "fkey"
    assert show_code("both", "fkey", store=store).text == module["source_code"]


def test_the_golden_store() -> None:
    """Units that no compiler wrote: counted by kind, their graphs named as unreadable."""
    found = {item.name: item for item in show_graphs("gpt", store=GOLDEN)}
    found |= {item.name: item for item in show_graphs("directories", store=GOLDEN)}
    counts = {(p.section, p.kind): p.units for p in found["gpt"].parts}
    assert counts["inductor", "graph"] == 2
    assert counts["triton", "kernel"] == counts["aot", "aot"] == 1
    assert len(found["gpt"].unreadable) == 3
    assert {kernel.name for kernel in found["gpt"].kernels} == {"cabstem", "kernel"}
    assert {(p.section, p.kind) for p in found["directories"].parts} == {
        ("megacache", "graph"),
        ("megacache", "pgo"),
        ("triton", "kernel"),
    }
    code = show_code("gpt", "cabstem", store=GOLDEN)
    assert code.text.startswith("extern void kernel")


def test_damage_is_refused(h200: Path, tmp_path: Path) -> None:
    """A pack with one byte changed is not read at all."""
    store = shutil.copytree(h200, tmp_path / "store")
    (pack,) = (store / "bundles" / "mega").rglob("*.tar.zst")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    for read in (
        lambda: show_graphs("mega", store=store),
        lambda: show_code("mega", "f", store=store),
    ):
        with pytest.raises(IntegrityError, match="does not have the size and digest"):
            read()


def test_a_bomb_in_a_store(tmp_path: Path) -> None:
    """A pickle that would run a command is published and shown; the command is not run."""

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path / 'mark'}",)

    folder = tmp_path / "tree" / "fxgraph" / "ab" / "fkey"
    folder.mkdir(parents=True)
    (folder / "hash").write_bytes(pickle.dumps([Bomb(), {"source_code": "code", "b": Bomb()}]))
    push("bomb", store=tmp_path / "store", inductor_dir=tmp_path / "tree")
    (contents,) = show_graphs("bomb", store=tmp_path / "store")
    assert contents.graphs[0].key == "fkey"
    assert show_code("bomb", "fkey", store=tmp_path / "store").text == "code"
    assert not (tmp_path / "mark").exists()


def test_too_large_to_read(h200: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry above the bound is named with its size, and the smaller ones are read."""
    for module in (opened, graphs_module):
        monkeypatch.setattr(module, "MAX_BYTES", 2 << 20)
    (contents,) = show_graphs("mega", store=h200)
    assert len(contents.graphs) == 2
    assert all("bytes; entries up to 2097152 are read" in u.reason for u in contents.unreadable)
    assert len(contents.unreadable) == 2


def test_no_such_bundle(h200: Path) -> None:
    """As every verb says it."""
    with pytest.raises(BundleNotFound, match=r"no bundle nobody in .*: `tccache ls` shows"):
        show_graphs("nobody", store=h200)
    with pytest.raises(UsageError, match="there is no code for 'nothing': give a key"):
        show_code("mega", "nothing", store=h200)


def test_progress_and_scratch(h200: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each pack read is said; afterwards no file is left where scratch files lie."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    steps: list[str] = []
    show_graphs("mega", store=h200, progress=steps.append)
    assert [step.partition("/")[0] for step in steps] == ["read mega"]
    assert list(tmp_path.iterdir()) == []


NO_TORCH = """
import json, sys
import cachesvc

(contents,) = cachesvc.show_graphs(sys.argv[1], store=sys.argv[2])
assert "torch" not in sys.modules
print(json.dumps(contents.to_json()))
"""


@pytest.mark.xdist_group("start")
def test_a_model_compiled_here(fused: Any) -> None:
    """A graph of this torch, shown without torch: its C++ file is found by its code."""
    line = [sys.executable, "-c", NO_TORCH, fused.label, str(fused.store)]
    found = json.loads(subprocess.run(line, capture_output=True, check=True).stdout)
    (graph,) = found["graphs"]
    assert (graph["kind"], graph["devices"]) == ("inference", ["cpu"])
    assert graph["inputs"] == ["float32[4, 4]", "float32[4]", "float32[2, 4]"]
    assert graph["operators"]["aten.addmm"] == graph["library_calls"]["addmm"] == 1
    assert graph["compile_s"] > 0
    assert graph["module"]
    assert graph["autograd"]
    (use,), (kernel,) = graph["kernels"], found["kernels"]
    assert use["units"] == [kernel["key"]]
    assert kernel["name"] == use["name"]
    assert kernel["name"].startswith("cpp_fused_")
    assert found["unreadable"] == []
    assert 'extern "C"' in show_code(fused.label, use["name"], store=fused.store).text
