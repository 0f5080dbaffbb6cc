"""The environment fingerprint: what it says, and what it does not depend on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest

from cachesvc.core.errors import UsageError
from cachesvc.local.fingerprint import (
    TorchNotFound,
    glibc_version,
    package_folder,
    platform_name,
    python_abi,
    read_torch,
    triton_version,
)
from cachesvc.local.host import COMPONENTS, environment_from, read_environment
from cachesvc.local.machine import Machine

ROOT = Path(__file__).parents[2]

# An H200 as its bundles record it.
H200 = {
    "torch": "2.11.0+cu130",
    "torch_git": "70d99e998b4955e0049d13a98d77ae1b14db1f45",
    "triton": "3.6.0",
    "runtime": "cuda 13.0",
    "device": "NVIDIA H200",
    "capability": "9.0",
    "python": "cpython-312-x86_64-linux-gnu",
    "platform": "linux-x86_64-glibc",
}

ASK = """
import json, sys
from cachesvc.local.host import read_environment
environment = read_environment()
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "triton", "numpy"})
print(json.dumps({"digest": environment.digest, "heavy": heavy, **environment}))
"""

TORCH_SAYS = """
import json, sys, torch
print(json.dumps({
    "torch": torch.__version__,
    "torch_git": torch.version.git_version,
    "runtime": "cpu" if torch.version.cuda is None else "cuda " + torch.version.cuda,
}))
from cachesvc.local.host import read_environment
print(json.dumps(dict(read_environment())))
"""

OTHER_HOST = """
import os, socket
real = os.uname()
os.uname = lambda: os.uname_result((real.sysname, "elsewhere", *real[2:]))
socket.gethostname = lambda: "elsewhere"
"""


# Imported first: the interpreter itself may lie in the home of the user who runs the tests.
NOBODY = """
import json, os, cachesvc.local.host
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(12345)
    os.setuid(12345)
assert "HOME" not in os.environ
"""


def child(code: str, environ: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    """The output of `code` in a fresh interpreter that has only these variables and PATH."""
    command = [sys.executable, "-c", code]
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=known | dict(environ or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reading_imports_neither_torch_nor_triton() -> None:
    """A pull in an init container does not wait for the import of torch."""
    answer = json.loads(child(ASK))
    assert answer["heavy"] == []
    assert {*answer} - {"digest", "heavy"} == set(COMPONENTS)


def test_it_says_what_torch_says_of_itself() -> None:
    """Reading the version file gives the same as importing torch, also in a process that has."""
    torch, read = map(json.loads, child(TORCH_SAYS).splitlines())
    assert torch == {name: read[name] for name in torch}


@pytest.mark.parametrize(
    "changed",
    [
        {"HOME": "/nonexistent"},
        {"TMPDIR": "/nonexistent"},
        {"HOSTNAME": "elsewhere"},
        {"USER": "somebody", "LOGNAME": "somebody"},
        {"PYTHONHASHSEED": "4711"},
        {"XDG_CACHE_HOME": "/nonexistent", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_volatile_environment_does_not_change_it(changed: dict[str, str]) -> None:
    """Two machines that differ only in users, paths and seeds share their bundles."""
    assert json.loads(child(ASK, changed))["digest"] == read_environment().digest


def test_neither_the_folder_nor_the_host_name_changes_it(tmp_path: Path) -> None:
    """A pod with another name and working directory gets the same fingerprint."""
    assert json.loads(child(OTHER_HOST + ASK, cwd=tmp_path))["digest"] == read_environment().digest


def test_an_unknown_user_without_a_home_can_read_it() -> None:
    """A random UID without a passwd entry and without HOME is an everyday container."""
    assert json.loads(child(NOBODY + ASK))["digest"] == read_environment().digest


def test_the_first_torch_on_the_path_is_read(torch_text: Callable[..., Path]) -> None:
    """A torch in front of the installed one, as a development install puts it, is the one."""
    site = torch_text(__version__="9.9.0a0+git1").parent
    assert json.loads(child(ASK, {"PYTHONPATH": f"{ROOT}:{site}"}))["torch"] == "9.9.0a0+git1"


def test_a_package_behind_an_import_hook_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable install leaves only a finder behind; its folder is found without importing."""
    (tmp_path / "kept_elsewhere").mkdir()
    (tmp_path / "kept_elsewhere" / "__init__.py").write_text("raise ImportError\n")

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            known = name == "kept_elsewhere"
            return PathFinder.find_spec(name, [str(tmp_path)]) if known else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert package_folder("kept_elsewhere") == tmp_path / "kept_elsewhere"


def test_a_folder_of_that_name_is_not_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder `torch` without a package in it is not taken for torch."""
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert package_folder("only_a_folder") is None


def test_without_torch_the_error_says_what_to_install() -> None:
    """An interpreter without torch is a usage error that names the interpreter and the cure."""
    code = "import sys\nsys.modules['torch'] = None\n"
    code += "from cachesvc.local.host import read_environment\n"
    code += "try: read_environment()\nexcept Exception as error: print(type(error).__name__, error)"
    answer = child(code)
    assert answer.startswith("TorchNotFound")
    assert "pip install torch" in answer
    assert sys.executable in answer
    assert issubclass(TorchNotFound, UsageError)


def test_a_source_tree_that_was_never_built_is_refused(tmp_path: Path) -> None:
    """A checkout of torch in the working directory has no version file, and the error says so."""
    with pytest.raises(TorchNotFound, match=r"version\.py"):
        read_torch(tmp_path)


@pytest.mark.parametrize(
    ("values", "runtime"),
    [
        ({}, "cpu"),
        ({"cuda": "13.0"}, "cuda 13.0"),
        ({"hip": "6.4.43484-123eb5128"}, "rocm 6.4.43484-123eb5128"),
        ({"xpu": "20250301"}, "xpu 20250301"),
    ],
)
def test_the_runtime_is_what_torch_was_built_for(
    values: dict[str, str], runtime: str, torch_text: Callable[..., Path]
) -> None:
    """CUDA, ROCm, XPU and CPU builds are told apart by the version file."""
    assert read_torch(torch_text(**values)).runtime == runtime


def test_both_ways_torch_writes_its_version_file_are_read(tmp_path: Path) -> None:
    """Older releases write plain assignments, newer ones annotate them."""
    (tmp_path / "version.py").write_text(
        "__version__ = '2.8.0+cu126'\ndebug = False\ncuda: Optional[str] = '12.6'\n"
        "git_version = 'a1cb3cc'\nhip: Optional[str] = None\n"
    )
    build = read_torch(tmp_path)
    assert (build.version, build.git, build.runtime) == ("2.8.0+cu126", "a1cb3cc", "cuda 12.6")


def test_a_cuda_build_without_a_gpu_works_on_the_cpu(torch_text: Callable[..., Path]) -> None:
    """The CUDA wheel on a machine without a driver gives device cpu, and no error."""
    machine = Machine(torch=torch_text(cuda="13.0"), nvml="libabsent.so", libcuda="libabsent.so")
    environment = read_environment(machine)
    assert environment["runtime"] == "cuda 13.0"
    assert (environment["device"], environment["capability"]) == ("cpu", "none")


@pytest.mark.parametrize(
    ("source", "metadata", "version"),
    [
        ("__version__ = '3.6.0'", ["triton-3.6.0.dist-info"], "3.6.0"),
        (
            "__version__ = '3.6.0'",
            ["pytorch_triton-3.6.0+git9844da95.dist-info"],
            "3.6.0+git9844da95",
        ),
        (
            "__version__ = '3.5.1'",
            ["pytorch_triton_rocm-3.5.1+gitbbb06c03.dist-info"],
            "3.5.1+gitbbb06c03",
        ),
        (
            "__version__ = '3.5.1'",
            ["triton_rocm-3.5.1.dist-info", "torch-2.9.0.dist-info"],
            "3.5.1",
        ),
        ("__version__ = '3.6.0'", ["triton-3.5.0.dist-info"], "3.6.0"),
        (
            "__version__ = '3.6.0'",
            ["triton-3.6.0.dist-info", "pytorch_triton-3.6.0+git1.dist-info"],
            "3.6.0",
        ),
        ("__version__ = '3.6.0'", [], "3.6.0"),
        ("", [], "unknown"),
    ],
)
def test_triton_is_known_by_its_distribution(
    source: str, metadata: list[str], version: str, tmp_path: Path
) -> None:
    """A nightly is told from a release, whichever of its names Triton was installed under."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(f'"""isort:skip_file"""\n{source}\n')
    for name in metadata:
        (tmp_path / name).mkdir()
    assert triton_version(tmp_path / "triton") == version


def test_without_triton_the_component_says_none() -> None:
    """A CPU build has no Triton; the name stays, so that fingerprints compare."""
    assert triton_version(None) == "none"


@pytest.mark.parametrize(
    ("tag", "suffix", "flags", "abi"),
    [
        ("cpython-311", ".cpython-311-x86_64-linux-gnu.so", "", "cpython-311-x86_64-linux-gnu"),
        ("cpython-311", ".cpython-311d-x86_64-linux-gnu.so", "d", "cpython-311d-x86_64-linux-gnu"),
        ("cpython-313", ".cpython-313t-x86_64-linux-gnu.so", "t", "cpython-313t-x86_64-linux-gnu"),
        ("cpython-312", ".cpython-312-aarch64-linux-musl.so", "", "cpython-312-aarch64-linux-musl"),
        ("cpython-313", ".so", "t", "cpython-313t"),
    ],
)
def test_the_abi_tells_builds_of_python_apart(tag: str, suffix: str, flags: str, abi: str) -> None:
    """Debug and free-threaded builds of one version load other extension modules."""
    assert python_abi(tag, [suffix], flags) == abi


def test_a_system_without_glibc_is_musl() -> None:
    """musl answers the question for glibc's version with an error, in one of two ways."""

    def unknown_name(_: str) -> str:
        raise ValueError("unrecognized configuration name")

    assert glibc_version(unknown_name) is None
    assert glibc_version(lambda _: None) is None
    assert glibc_version(lambda _: "glibc 2.39") == "2.39"
    assert platform_name("x86_64", None) == "linux-x86_64-musl"
    assert platform_name("aarch64", "2.39") == "linux-aarch64-glibc"
    assert read_environment(Machine(confstr=unknown_name))["platform"].endswith("-musl")


def test_a_recorded_fingerprint_is_taken_as_it_is() -> None:
    """Another machine's bundles are inspected and moved under the fingerprint they recorded."""
    assert dict(environment_from(H200)) == H200
    assert set(H200) == set(COMPONENTS)


def test_a_recorded_fingerprint_with_other_names_is_refused() -> None:
    """Every missing, unknown and empty component is named at once."""
    wrong: dict[str, object] = H200 | {"capability": "", "cuda": "13.0", "python": 3}
    del wrong["platform"]
    with pytest.raises(UsageError) as caught:
        environment_from(wrong)
    for issue in ("capability is ''", "python is 3", "platform is missing", "cuda is unknown"):
        assert issue in str(caught.value)
