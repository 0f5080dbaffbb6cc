"""Bundles of strangers, shown: what `show`, `explain`, `ls` and `verify` print of them."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from cachesvc.core.digest import digest_bytes
from cachesvc.core.spelled import HIDDEN
from tccache.main import run

from .tries import quick_and_slow, try_all

MADE = runpy.run_path(str(Path(__file__).parent / "make_corpus.py"))
STEERS = re.compile(f"(?![\n\t])[{HIDDEN}]")
GRAPH, CODE, SOURCE = "inductor/fxgraph/ab/K/x", "inductor/ab/cab.py", "triton/K/k.source"
UNITS = {"inductor/fxgraph/ab/K": [GRAPH], "inductor/ab/cab": [CODE], "triton/K": [SOURCE]}
VERBS = [
    ["show", "hostile"],
    ["show", "hostile", "--graphs", "--all"],
    ["show", "hostile", "--json", "--graphs"],
    ["show", "hostile", "--code", GRAPH],
    ["show", "hostile", "--code", "cab"],
    ["explain", "hostile"],
    ["ls"],
    ["verify"],
]

TEXT = st.sampled_from(
    ["\x1b[2J", "\x9b2J", "\u202e", "a\nb", "x" * 3000, "'''", "\u2028", "", "]", "\x00", "\x7f"]
)
ANY = TEXT | st.integers() | st.none() | st.floats() | st.just("\ud800")


@st.composite
def modules(draw: st.DrawFn) -> str:
    """Generated code with anything in the places that are read of it."""
    return (
        f"# AOT ID: ['{draw(TEXT)}0_inference']\n# Original ATen: [aten.{draw(TEXT)}]\n"
        f"# kernel path: /a/{draw(TEXT)}.py\nk{draw(TEXT)} = async_compile.triton('{draw(TEXT)}',"
        f" '''{draw(TEXT)}''')\nasync_compile.wait(globals())\nextern_kernels.a{draw(TEXT)}(\n"
    )


GRAPHS = st.fixed_dictionaries({
    "source_code": modules(),
    "inductor_post_grad_graph_str": TEXT.map(lambda text: f'graph {text}]cuda:0"'),
    "cache_key": ANY,
    "_time_taken_ns": ANY | st.just(10**40),
    "_fx_graph_cache_debug_lines": st.lists(
        TEXT.map(lambda text: f"[h] gm: = torch.ops.aten.a{text}(")
        | TEXT.map(lambda text: f"[x] example_inputs[{len(text)}]: {text}")
        | TEXT.map(lambda text: f"[x] example_inputs[0]: dtype=torch.f, shape=torch.Size([{text}])")
    ),
})  # fmt: skip


@pytest.mark.parametrize("tries", quick_and_slow(4, 200))
def test_what_is_shown(
    tries: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Graphs, code, tags and facts of any text are read without running and printed without what
    steers a terminal; no verb is surprised."""
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    numbers = itertools.count()

    def one(said: tuple[Any, str, str]) -> None:
        graph, text, tag = said
        data = pickle.dumps(graph, protocol=4) if isinstance(graph, dict) else graph
        code = f"'''{text}\n@triton.jit\ndef k(x)".encode()
        files = {GRAPH: data, CODE: code, SOURCE: f'{text}loc("/a/{text}.py"'.encode()}
        store = tmp_path / str(next(numbers))
        put(store, files, tag)
        for verb in VERBS:
            assert run([*verb, "--store", str(store)]) in (0, 2, 3)
            out, err = capfd.readouterr()
            assert not STEERS.search(out + err), (verb, out + err)
            assert "please report it" not in err

    try_all(tries, st.tuples(GRAPHS | st.binary(max_size=60), TEXT, TEXT), one)


def put(folder: Path, files: dict[str, bytes], text: str) -> None:
    """A store with one segment whose facts for people all hold this text."""
    tar = MADE["tar_of"](files)
    pack = MADE["frame"](tar)
    manifest = MADE["manifest_of"](files, pack, len(tar), UNITS)
    manifest["tags"] = manifest["coverage"] = [text]
    manifest["producer"] = manifest["origins"][0]["context"] = {text: text, "threads": text}
    manifest["proof"] = {"verdict": "warm", "verified": [text], text: text}
    data = json.dumps(manifest).encode()
    place = folder / "bundles" / "hostile" / "any" / MADE["ENVIRONMENT"].digest / digest_bytes(data)
    place.parent.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    place.with_suffix(".json").write_bytes(data)
    place.with_suffix(".tar.zst").write_bytes(pack)
