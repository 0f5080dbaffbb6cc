"""Calls are captured in one process and made in another, without the compiler, and come out equal.

What cannot be captured is refused with a reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CAPTURE = """
from pathlib import Path
from cachesvc.runtime.aot.capture import NotCaptured, capture
from cachesvc.runtime.aot.files import write
from captured_models import calls

torch.manual_seed(0)
result = {}
with torch.no_grad():
    for name, (module, args) in calls().items():
        if name not in given["names"]:
            continue
        try:
            made = capture(module.forward, args, {}, {})
            told = {"part": "", "kind": "", "call": (), "state": (), "pins": {}}
            result[name] = str(write(made, Path(given["root"]), group=name, **told))
        except NotCaptured as error:
            result[name] = f"refused: {error}"
"""

CALL = """
from pathlib import Path
from cachesvc.runtime.aot.files import read
from cachesvc.runtime.aot.function import Function
from captured_models import calls

torch.manual_seed(0)
result = {}
with torch.no_grad():
    for name, (module, args) in calls().items():
        if name in given["folders"]:
            function = Function(read(Path(given["folders"][name])), module.forward)
            again = Function(read(Path(given["folders"][name])), module.forward)
            expected = module.forward(*args)
            outputs = [function(module, *args), again(module, *args), function(module, *args)]
            result[name] = all(
                torch.allclose(a, b, atol=1e-6) and a.requires_grad == b.requires_grad
                for output in outputs
                for a, b in zip(expected, output, strict=True)
            )
result["imported"] = [n for n in ("torch._dynamo", "torch._inductor") if n in sys.modules]
"""

COMPILE_AFTER = """
from pathlib import Path
from cachesvc.runtime.aot.files import read
from cachesvc.runtime.aot.function import Function
from captured_models import calls

torch.manual_seed(0)
with torch.no_grad():
    module, args = calls()["kernel"]
    function = Function(read(Path(given["folder"])), module.forward)
    ours = function(module, *args)
    compiled = torch.compile(module)(*args)
    name = next(Path(given["folder"]).glob("*.so")).name
    files = {n: str(getattr(m, "__file__", "")) for n, m in sys.modules.items()}
    named = {n: file for n, file in files.items() if file.endswith(name)}
    again = function(module, *args)
    result = {
        "equal": torch.equal(ours[0], compiled[0]) and torch.equal(ours[0], again[0]),
        "ours": [n for n, file in named.items() if file.startswith(given["folder"])],
        "theirs": [n for n, file in named.items() if not file.startswith(given["folder"])],
    }
"""

QUICK = ("linear", "decorated", "views", "branch", "nothing")
KERNELS = ("kernel", "constant", "shared")


@pytest.fixture(scope="session")
def quick(fresh: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders, or reasons, of calls for which no C++ is built."""
    root = tmp_path_factory.mktemp("captured")
    found: dict[str, str] = fresh.run(CAPTURE, given={"names": QUICK, "root": root})
    return found


@pytest.fixture(scope="session")
def kernels(fresh: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same of calls with native kernels."""
    root = tmp_path_factory.mktemp("captured")
    found: dict[str, str] = fresh.run(CAPTURE, given={"names": KERNELS, "root": root})
    return found


def _folders(found: dict[str, str]) -> dict[str, str]:
    return {name: told for name, told in found.items() if not told.startswith("refused")}


@pytest.mark.xdist_group("captured")
def test_calls_are_made_without_the_compiler(fresh: Any, quick: dict[str, str]) -> None:
    """Of a module of torch's own, of a decorated forward, with views of inputs and of parameters;
    and neither Dynamo nor Inductor is imported for it."""
    folders = _folders(quick)
    assert folders.keys() == {"linear", "decorated", "views"}
    called = fresh.run(CALL, given={"folders": folders}, own=True)
    assert called == {**dict.fromkeys(folders, True), "imported": []}


@pytest.mark.xdist_group("captured")
def test_a_call_that_cannot_be_captured_says_why(quick: dict[str, str]) -> None:
    """In words of torch's without its advice, or in ours."""
    assert "Data-dependent branching" in quick["branch"]
    assert "Hint" not in quick["branch"]
    assert quick["nothing"] == "refused: the call computes nothing that could be compiled"


@pytest.mark.slow
@pytest.mark.xdist_group("kernels")
def test_native_kernels_come_along(fresh: Any, kernels: dict[str, str]) -> None:
    """A function has its libraries in its folder; constants that the graph holds are there; input
    that shares memory with what is written to is refused."""
    folders = _folders(kernels)
    assert folders.keys() == {"kernel", "constant"}
    assert "share memory" in kernels["shared"]
    assert list(Path(folders["kernel"]).glob("*.so"))
    called = fresh.run(CALL, given={"folders": folders}, own=True)
    assert called == {**dict.fromkeys(folders, True), "imported": []}


@pytest.mark.slow
@pytest.mark.xdist_group("kernels")
def test_a_later_compile_has_its_own_library(fresh: Any, kernels: dict[str, str]) -> None:
    """Inductor builds and loads the library of that name itself: none of ours stands for it."""
    told = fresh.run(COMPILE_AFTER, given={"folder": kernels["kernel"]})
    assert told["equal"]
    assert [name.partition("_")[0] for name in told["ours"]] == ["cachesvc"]
    assert len(told["theirs"]) == 1
    assert not told["theirs"][0].startswith("cachesvc")
