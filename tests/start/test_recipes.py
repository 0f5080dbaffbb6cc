"""What goes wrong in the field and needs no GPU to be seen: each with its verdict and sentence.

Users without a name or a home are in test_odd_homes.py, libraries that are cut short in
test_quarantine.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachesvc.start.pull import pull
from cachesvc.start.push import push

from .conftest import Published, Starts
from .test_publishing import keys, manifests

pytestmark = pytest.mark.xdist_group("start")

AGAIN = "result = shown(start(torch.compile(Fused()), [ones()]))"


def test_a_mega_cache_loaded_and_saved_again_loses_nothing(starts: Starts, tmp_path: Path) -> None:
    """torch's own file, saved after a load, lacks what was loaded and not called; pushed under the
    same name, the store has the old functions and the new one, and all of them start warm."""
    script = """
def double(x):
    return x @ x.t()

def triple(x):
    return x @ x @ x

functions = {f.__name__: torch.compile(f) for f in (square, double, triple)}
if given["load"]:
    cachesvc.pull("functions", store=given["store"], mega=given["file"])
    torch.compiler.load_cache_artifacts(open(given["file"], "rb").read())
with torch.no_grad():
    for name in given["names"]:
        functions[name](ones(2, 2))
artifacts, info = torch.compiler.save_cache_artifacts()
open(given["file"], "wb").write(artifacts)
cachesvc.push(functions, store=given["store"], label="functions", mega=given["file"])
result = len(info.inductor_artifacts)
"""

    def run(load: bool, *names: str) -> int:
        given = {"load": load, "names": names, "file": tmp_path / f"{'-'.join(names)}.bin"}
        return int(starts.run(script, store=tmp_path / "store", given=given))

    assert run(False, "square", "double") == 2
    old = keys(tmp_path / "store", "functions")
    assert run(True, "square", "triple") == 2  # the old one that was not called is not in the file
    assert old < keys(tmp_path / "store", "functions")
    report = starts.run(
        script.partition("if given")[0]
        + """
calls = [lambda f=f: f(ones(2, 2)) for f in functions.values()]
result = shown(start(functions, calls=calls, label="functions"))
""",
        store=tmp_path / "store",
    )
    assert report["counts"]["graph_hits"] == 3
    assert (report["verdict"], report["tier"]) == ("warm", "megacache")


def test_another_number_of_threads(starts: Starts, fused: Published) -> None:
    """Filled with OMP_NUM_THREADS=1 and used with more: the number is in the key of a graph, so it
    is compiled again, though its code comes out the same and the library is found; the context
    names both numbers."""
    script = f"torch.set_num_threads(3)\n{AGAIN}"
    report = starts.run(script, store=fused.store, label="fused")
    assert "context differs, threads: 1 -> 3" in report["notes"]
    assert report["verdict"] == "partial"
    assert report["counts"]["graph_hits"] == report["counts"]["cpp_builds"] == 0
    assert report["counts"]["cpp_hits"] == 1


TRAINED = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x @ x.t()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad @ x

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return Square.apply(self.inner(x)) @ x

model = torch.compile(Model())

def step():
    with torch.enable_grad():
        model(ones()).sum().backward()

report = start(model, calls=[step])
push(model, report)
result = shown(report)
"""


def test_an_autograd_function(starts: Starts, tmp_path: Path) -> None:
    """AOTAutograd refuses such a graph: each start traces it again and is partial, though what it
    compiled is used; the report says why, and what that means."""
    cold, again = (starts.run(TRAINED, store=tmp_path / "store", label="trained") for _ in range(2))
    assert (cold["verdict"], again["verdict"]) == ("cold", "partial")
    assert again["counts"]["graph_hits"] == 2
    assert again["counts"]["generated"] == again["counts"]["native_builds"] == 0
    (bypass,) = again["incidents"]
    assert bypass["kind"] == "bypass AOTAutograd"
    assert "autograd_function_apply" in bypass["reason"]
    assert "traced at each start" in bypass["consequence"]
    assert "AOTAutograd cannot cache 1 graphs; each start traces them" in again["text"]
    assert bypass["reason"] in again["text"]
    assert bypass["consequence"] in again["text"]


@pytest.mark.parametrize(("folder", "verdict"), [("fxgraph", "cold"), ("aotautograd", "partial")])
def test_an_entry_of_this_machine_that_is_cut_short(
    starts: Starts, plain: Published, tmp_path: Path, folder: str, verdict: str
) -> None:
    """Made here and in no bundle, as a full disk leaves it: the call goes well, what is missing is
    made again, and the start after it is warm."""
    home = tmp_path / "home"
    shutil.copytree(plain.home, home)
    entries = [path for path in home.rglob(f"{folder}/**/*") if path.is_file()]
    for entry in entries:
        os.truncate(entry, entry.stat().st_size // 2)
    assert entries
    how: dict[str, Any] = {"store": tmp_path / "store", "label": "plain", "home": home}
    script = AGAIN.replace("Fused", "Plain")
    report = starts.run(script, **how)
    assert report["first_call_s"] is not None
    assert report["verdict"] == verdict
    assert not any("call failed" in note for note in report["notes"])
    assert starts.run(script, **how)["verdict"] == "warm"


TRITON = Path(__file__).parents[2] / ".venv" / "triton"
READ_GROUP = """
import json, sys
from triton.runtime.cache import FileCacheManager
print(json.dumps(FileCacheManager(sys.argv[1]).get_group(sys.argv[2])))
"""


@pytest.mark.skipif(not TRITON.is_dir(), reason="`make .venv/.triton` unpacks Triton")
def test_a_group_that_is_cut_short(h200_tree: Path, tmp_path: Path) -> None:
    """Triton raises on it at every start; brought again from the store it is read as before."""
    origin = json.loads((h200_tree / "origin.json").read_text())
    environment = {
        **{name: origin[name] for name in ("torch", "torch_git", "triton", "device")},
        "capability": origin["capability"],
        "runtime": f"cuda {origin['cuda']}",
        "python": "cpython-312-x86_64-linux-gnu",
        "platform": "linux-x86_64-glibc",
    }
    group = next((h200_tree / "triton").glob("*/__grp__*.json"))
    key, place = group.parent.name, tmp_path / "place"
    shutil.copytree(group.parent, tmp_path / "tree" / key)
    how: dict[str, Any] = {"store": tmp_path / "store", "environment": environment}
    push("one", triton_dir=tmp_path / "tree", **how)

    def read() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", READ_GROUP, key, group.name.removeprefix("__grp__")],
            env={**os.environ, "PYTHONPATH": str(TRITON), "TRITON_CACHE_DIR": str(place)},
            capture_output=True,
            text=True,
            check=False,
        )

    pull("one", triton_dir=place, **how)
    whole = json.loads(read().stdout)
    os.truncate(place / key / group.name, 40)
    assert "JSONDecodeError" in read().stderr
    assert pull("one", triton_dir=place, **how).transfer.repaired == 1
    assert json.loads(read().stdout) == whole
    assert all(Path(path).is_file() for path in whole.values())


def test_half_written_files_in_the_live_directory(
    starts: Starts, fused: Published, tmp_path: Path
) -> None:
    """Left by a process that was killed while it wrote: the start is warm in spite of them, and
    they are never published."""
    home = tmp_path / "home"
    shutil.copytree(fused.home, home)
    (entry,) = (path for path in home.rglob("fxgraph/*/*/*") if path.is_file())
    half = entry.read_bytes()[:100]
    for file in (entry.with_name(".2716.140.tmp"), entry.parents[2] / ".2717.140.tmp"):
        file.write_bytes(half)
    report, segment = starts.run(
        """
model = torch.compile(Fused())
report = start(model, [ones()])
result = [shown(report), push(model, report)]
""",
        store=tmp_path / "store",
        label="fused",
        home=home,
    )
    assert report["verdict"] == "warm"
    assert segment is not None
    (manifest,) = manifests(tmp_path / "store", "fused")
    paths = [entry.path for unit in manifest.units for entry in unit.entries]
    assert any("/fxgraph/" in path for path in paths)
    assert not any(part.startswith(".") for path in paths for part in path.split("/"))


def test_a_mega_cache_saved_before_any_compile_is_refused(starts: Starts, tmp_path: Path) -> None:
    """torch saves nothing then, and a file with nothing in it is no bundle: the push says so, and
    the store stays as it was."""
    saved, error = starts.run(
        """
from cachesvc.core.errors import TccacheError
from cachesvc.local.megafile import put_together

model = torch.compile(Plain())
open(given["file"], "wb").write(put_together([]))
result = [torch.compiler.save_cache_artifacts(), None]
try:
    cachesvc.push(model, store=given["store"], mega=given["file"])
except TccacheError as error:
    result[1] = str(error)
""",
        store=tmp_path / "store",
        given={"file": tmp_path / "mega.bin"},
    )
    assert saved is None
    assert error.endswith("mega.bin holds no artifact: it was saved before anything compiled")
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


STATIC = "model = torch.compile(Plain(), dynamic=False)\n"


@pytest.fixture(scope="module")
def static(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a bundle of Plain for a batch of 2 and no other."""
    store = tmp_path_factory.mktemp("static") / "store"
    starts.run(STATIC + "push(model, start(model, [ones(2, 4)]))", store=store, label="static")
    return store


def test_a_batch_that_was_not_warmed(starts: Starts, static: Path) -> None:
    """Warmed with 2 and started with 3: inert, and the call that the bundle lacks is named."""
    report = starts.run(
        STATIC + "result = shown(start(model, [ones(3, 4)]))", store=static, label="static"
    )
    assert report["verdict"] == "inert"
    assert [call["covered"] for call in report["calls"]] == [False]
    assert "the bundle was not made with a call like (float32[3, 4])" in report["text"]


def test_a_batch_that_comes_later(starts: Starts, static: Path) -> None:
    """Warmed with 2 and serving 3 afterwards: the report of the start tells of it, and of the
    guard that failed."""
    report = starts.run(
        STATIC
        + """
report = start(model)
result = [shown(report)]
with torch.no_grad():
    for size in (2, 3):
        model(ones(size, 4))
        result.append(shown(report))
""",
        store=static,
        label="static",
    )
    before, warm, partial = report
    assert [item["verdict"] for item in report] == ["unproven", "warm", "partial"]
    assert before["incidents"] == warm["incidents"] == []
    (recompile,) = partial["incidents"]
    assert recompile["kind"] == "recompile"
    assert "expected 2, actual 3" in recompile["reason"]
    assert recompile["reason"] in partial["text"]
    assert "give such a call when the bundle is made" in partial["text"]


def test_a_print_in_forward(starts: Starts, tmp_path: Path) -> None:
    """Two graphs with Python between them: named with its line, and warm all the same."""
    (tmp_path / "app.py").write_text(
        "import torch\n\n\nclass Talking(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        y = x @ x\n"
        "        print('here')\n"
        "        return y @ x\n"
    )
    script = """
sys.path.insert(0, given["app"])
from app import Talking
model = torch.compile(Talking())
report = start(model, [ones(2, 2)])
push(model, report)
result = shown(report)
"""
    how: dict[str, Any] = {"store": tmp_path / "store", "given": {"app": tmp_path}}
    cold, warm = (starts.run(script, label="talking", **how) for _ in range(2))
    assert (cold["verdict"], warm["verdict"]) == ("cold", "warm")
    assert warm["counts"]["graph_hits"] == 2
    assert warm["counts"]["graph_breaks"] == 1
    (incident,) = warm["incidents"]
    assert incident["kind"] == "graph break"
    assert "print" in incident["reason"]
    assert incident["place"] == "app.py:7 in forward"
    assert f"graph break at app.py:7 in forward: {incident['reason']}" in warm["text"]


CONSTANT = """
class Scaled(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.addmm(x, x, self.inner.weight, beta=self.config["scale"])

bare = Scaled({"scale": given["scale"], "name": "small"}).eval()
model = torch.compile(bare)
report = start(model, [ones(4, 4)], fallback=given["fallback"])
with torch.no_grad():
    right = bool(torch.allclose(model(ones(4, 4)), bare(ones(4, 4))))
if given["push"]:
    push(model, report)
result = [shown(report), right]
"""


@pytest.fixture(scope="module")
def scaled(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a bundle of a model whose configuration says 2."""
    store = tmp_path_factory.mktemp("scaled") / "store"
    given = {"scale": 2.0, "fallback": True, "push": True}
    report, right = starts.run(CONSTANT, store=store, label="scaled", given=given)
    assert (report["verdict"], right) == ("cold", True)
    return store


@pytest.mark.parametrize("fallback", [True, False])
def test_one_constant_of_the_configuration(starts: Starts, scaled: Path, fallback: bool) -> None:
    """Another value is another model: the old value's result is never served, also where the old
    bundle stands in; then the report names the constant."""
    given = {"scale": 3.0, "fallback": fallback, "push": False}
    report, right = starts.run(CONSTANT, store=scaled, label="scaled", given=given)
    assert right
    assert report["counts"]["graph_hits"] == 0
    assert report["fallback"] is fallback
    assert report["verdict"] == ("inert" if fallback else "cold")
    named = [note for note in report["notes"] if "scale" in note and "3.0" in note]
    assert bool(named) is fallback
