"""Command lines that are never run are those that would be run."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fresh_processes import FreshProcesses

from cachesvc.runtime import commands

REAL = """
from torch._inductor import cpp_builder
from torch._inductor.cpu_vec_isa import invalid_vec_isa
from cachesvc.runtime.commands import unrun, watch_commands

started = []
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)

def line(**options):
    built = cpp_builder.CppTorchDeviceOptions(vec_isa=invalid_vec_isa, **options)
    return cpp_builder.CppBuilder(name="o", sources="i", BuildOption=built).get_command_line()

def lines():
    forms = ({}, {"compile_only": True, "min_optimize": True}, {"include_pytorch": True})
    return [line(device_type="cpu", **form) for form in forms]

watch_commands()
with unrun():
    unrun_lines = lines()
before = len(started), "setuptools" in sys.modules
result = [unrun_lines == lines(), before, [len(started) > 0, "setuptools" in sys.modules]]
"""


def test_torchs_own_command_lines(fresh: FreshProcesses) -> None:
    """Character by character, with no process started and setuptools not imported."""
    equal, before, after = fresh.run(REAL)
    assert equal
    assert before == [0, False]
    assert after == [True, True]


def related(device: str = "cpu") -> tuple[list[str], str]:
    """As Inductor asks for its paths."""
    from torch.utils.cpp_extension import TORCH_LIB_PATH, include_paths

    return include_paths(device), TORCH_LIB_PATH


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that asks the compiler and finds what nobody else would."""
    module = ModuleType("torch._inductor.cpp_builder")
    vars(module).update(
        cpp_compiler_search=lambda search: "asked",
        _is_intel_compiler=lambda compiler: "asked",
        _get_torch_related_args=related,
    )
    commands._watch(module)
    return module


def put(folder: Path, name: str, target: str | None = None) -> None:
    file = folder / (target or name)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    if target:
        (folder / name).symlink_to(file)


def test_the_first_compiler_on_path(
    builder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None stands for one that torch would install; where none lies there torch searches."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with commands.unrun():
        assert builder.cpp_compiler_search((None, "g++")) == "asked"
        put(tmp_path, "g++")
        assert builder.cpp_compiler_search((None, "clang++", "g++")) == "g++"
    assert builder.cpp_compiler_search((None, "g++")) == "asked"


def test_intels_compilers_go_by_their_files(
    builder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind another name."""
    monkeypatch.setenv("PATH", str(tmp_path))
    put(tmp_path, "g++", "x86_64-linux-gnu-g++-12")
    put(tmp_path, "c++", "icpx")
    with commands.unrun():
        assert builder._is_intel_compiler("g++") is False
        assert builder._is_intel_compiler("c++") is True
        assert builder._is_intel_compiler("cl") == "asked"
    assert builder._is_intel_compiler("g++") == "asked"


def test_paths_for_another_device(builder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a CPU are known; for others the module is imported, as it is where it lies."""
    module: Any = ModuleType("torch.utils.cpp_extension")
    module.include_paths, module.TORCH_LIB_PATH = lambda device: [device], "lib"
    monkeypatch.delitem(commands.sys.modules, module.__name__, raising=False)
    with commands.unrun():
        includes, library = builder._get_torch_related_args()
        assert includes[0].endswith("torch/include")
        assert library.endswith("torch/lib")
    monkeypatch.setitem(commands.sys.modules, module.__name__, module)
    monkeypatch.setattr("torch.utils.cpp_extension", module, raising=False)
    with commands.unrun():
        assert builder._get_torch_related_args() == (["cpu"], "lib")
    assert builder._get_torch_related_args("cuda") == (["cuda"], "lib")


def test_another_builder() -> None:
    """A module that has none of this is left as it is."""
    module = ModuleType("torch._inductor.cpp_builder")
    before = dict(vars(module))
    commands._watch(module)
    assert vars(module) == before
