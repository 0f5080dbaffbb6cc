"""tccache show --graphs and --code: what is said of a bundle's graphs and kernels."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

KERNEL = (
    "k = async_compile.cpp_pybinding([], r'''\nextern \"C\" void kernel()\n{\n\treturn;\n}\n''')\n"
)
MODULE = f"# AOT ID: ['0_forward']\n{KERNEL.replace('k =', 'cpp_fused_relu_0 =')}"
STEERING = "\x1b]0;owned\x07\r\x9b2J"


def graph(number: int, **fields: Any) -> dict[str, Any]:
    """A graph's pickle: so many operators, and ten inputs."""
    lines = [
        "[h] gm: m()\n" + "    a = torch.ops.aten.relu.default(a)\n" * (number + 1),
        *(
            f"[h] example_inputs[{n}]: T(dtype=torch.float32, shape=torch.Size([{n}, s7]))"
            for n in range(10)
        ),
    ]
    plain = {"source_code": MODULE, "cache_key": "c", "_time_taken_ns": 1_500_000_000, "l": lines}
    return {**plain, **fields}


@pytest.fixture
def line(tmp_path: Path, tccache: Command) -> tuple[str, ...]:
    """The start of a command line that shows a bundle of ten graphs and one C++ kernel."""
    tree = tmp_path / "compiled"
    files = {f"fxgraph/gr/fgraph{n}/hash": pickle.dumps(graph(n)) for n in range(9)}
    files["fxgraph/gr/fsteering/hash"] = pickle.dumps(graph(9, source_code=f"{MODULE}{STEERING}"))
    files["fxgraph/gr/fspoiled/hash"] = b"no pickle"
    files["ab/cabkernel.main.cpp"] = b'\nextern "C" void kernel()\n{\n\treturn;\n}\n// and more'
    for name, data in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    store = str(tmp_path / "graphs")
    assert tccache("push", "m", "--store", store, "--inductor-dir", tree).code == 0
    return "show", "m", "--store", store


def test_the_text(tccache: Command, line: tuple[str, ...]) -> None:
    """Graphs with all that is known, kernels, bytes by kind, what is unreadable, and a hint."""
    ran = tccache(*line, "--graphs")
    assert (ran.code, ran.err) == (0, "")
    for text in (
        "  graphs: 10\n",
        "    fgraph0: forward, ",
        ", compiled in 1.5 s\n",
        "      10 inputs: float32[0, s7], float32[1, s7], ",
        "float32[7, s7], and 2 more\n",
        "      1 operator: aten.relu\n",
        "      2 operators: aten.relu x2\n",
        "      kernel cpp_fused_relu_0\n",
        "    and 2 more: --all shows them\n",
        "  kernels in inductor: 1, ",
        "    cpp_fused_relu_0 (C++, cabkernel): ",
        "  inductor by kind: graph 11 units of ",
        "  unreadable: inductor/fxgraph/gr/fspoiled/hash: it is no pickle that can be read: ",
        "`tccache show m --code KEY` prints the code of a graph or kernel\n",
    ):
        assert text in ran.out


def test_all_cuts_nothing_short(tccache: Command, line: tuple[str, ...]) -> None:
    """Every graph and every input is there, and no count of what is left out."""
    out = tccache(*line, "--graphs", "--all").out
    assert " more" not in out
    assert out.count("float32[9, s7]") == out.count("made ") == 10


def test_the_json_has_all(tccache: Command, line: tuple[str, ...]) -> None:
    """The fields of a plain show stay; the contents come beside them, only when asked for."""
    plain, whole = tccache(*line, "--json").json, tccache(*line, "--graphs", "--json").json
    (before,), (bundle,) = plain["bundles"], whole["bundles"]
    added = {"graphs", "kernels", "parts", "unreadable"}
    assert bundle.keys() - before.keys() == added
    assert {name: bundle[name] for name in before} == before
    assert len(bundle["graphs"]) == 10
    assert len(bundle["graphs"][0]["inputs"]) == 10
    assert bundle["kernels"][0]["forms"] == {"cpp": "inductor/ab/cabkernel.main.cpp"}


def test_code(tccache: Command, line: tuple[str, ...]) -> None:
    """A kernel's code goes to stdout as it is, and nothing else does; JSON says where it lies."""
    ran = tccache(*line, "--code", "cpp_fused_relu_0")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == '\nextern "C" void kernel()\n{\n\treturn;\n}\n// and more\n'
    said = tccache(*line, "--code", "cabk", "--json").json
    assert said["schema"] == "tccache.show/1"
    assert said["code"]["path"] == "inductor/ab/cabkernel.main.cpp"
    assert said["code"]["form"] == "cpp"
    assert said["code"]["text"] == ran.out.removesuffix("\n")


def test_code_does_not_steer_a_terminal(tccache: Command, line: tuple[str, ...]) -> None:
    """Line ends and tabs stay; any other control character is spelled out."""
    out = tccache(*line, "--code", "fsteering").out
    assert out.endswith("\\x1b]0;owned\\x07\\r\\x9b2J\n")
    assert "\treturn;\n" in out
    assert not set(out) & {"\x1b", "\x07", "\r", "\x9b"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("fgraph", "'fgraph' may mean 9 of what has code: "),
        ("nothing", "there is no code for 'nothing': give a key, a kernel's name, "),
        ("fgraph1.ptx", "'fgraph1' has no code in the form 'ptx': it has fx, py"),
        ("", "it is empty"),
    ],
)
def test_wrong_keys(tccache: Command, line: tuple[str, ...], asked: str, said: str) -> None:
    """Wrong usage in one line: what there is, so that the next try succeeds."""
    ran = tccache(*line, "--code", asked)
    assert ran.code == 2
    assert ran.is_one_error
    assert said in ran.err


def test_each_pack_is_said(tccache: Command, line: tuple[str, ...]) -> None:
    """With --verbose, as reading a large bundle takes a while."""
    assert tccache(*line, "--graphs", "-v").err.startswith("read m/any/")
