"""Variables that switch caches off, tools that are missing, caches of other compilers."""

from __future__ import annotations

import fcntl
import os
import re
import sysconfig
import tempfile
from pathlib import Path

import pytest

from cachesvc.local.caches import CACHES, left_locks, other_caches
from cachesvc.local.fingerprint import torch_folder
from cachesvc.local.flags import FLAGS, flag_findings
from cachesvc.local.lock import is_held, lock_of, take
from cachesvc.local.places import under
from cachesvc.local.toolchain import c_compiler, python_headers


@pytest.mark.parametrize(
    ("variable", "value", "severity"),
    [
        ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1", "disease"),
        ("TORCH_COMPILE_FORCE_DISABLE_CACHES", "true", "disease"),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", "0", "disease"),
        ("TORCHINDUCTOR_AUTOGRAD_CACHE", "0", "disease"),
        ("TORCH_COMPILE_DISABLE", "1", "disease"),
        ("TORCHDYNAMO_DISABLE", "1", "disease"),
        ("TRITON_ALWAYS_COMPILE", "ON", "disease"),
        ("TCCACHE_DISABLE", "1", "disease"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", "hint"),
        ("TORCH_COMPILE_CACHE_KEY_TAG", "v2", "hint"),
        ("TORCHDYNAMO_SUPPRESS_ERRORS", "0", "hint"),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", "", "disease"),
        ("TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES", "false", "hint"),
        ("VLLM_DISABLE_COMPILE_CACHE", "2", "disease"),
    ],
)
def test_a_variable_that_matters(variable: str, value: str, severity: str) -> None:
    """It is named with its value, what follows, and that it is to be unset."""
    (found,) = flag_findings({variable: value, "HOME": "/root"})
    assert (found.kind, found.severity, found.where) == ("flag", severity, f"{variable}={value}")
    assert found.cure.startswith(f"unset {variable}")


@pytest.mark.parametrize(
    "environ",
    [
        {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0"},
        {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": ""},
        {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1"},
        {"TORCH_COMPILE_DISABLE": "0"},
        {"TRITON_ALWAYS_COMPILE": "0"},
        {"TCCACHE_DISABLE": "0"},
        {"TCCACHE_DISABLE": ""},
        {"TORCH_COMPILE_DEBUG": "true"},
        {"CUDA_CACHE_DISABLE": "yes"},
        {"TRITON_INTERPRET": "enabled"},
        {},
    ],
)
def test_a_variable_that_does_not_matter(environ: dict[str, str]) -> None:
    """Empty, or set to what holds anyway."""
    assert list(flag_findings(environ)) == []


@pytest.mark.parametrize(
    ("name", "module", "setting"),
    [
        ("TORCH_COMPILE_DISABLE", "_dynamo", "disable"),
        ("TORCHINDUCTOR_FREEZING", "_inductor", "freezing"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "_inductor", "max_autotune"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM", "_inductor", "max_autotune_gemm"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE", "_inductor", "max_autotune_pointwise"),
        ("TORCHINDUCTOR_COORDINATE_DESCENT_TUNING", "_inductor", "coordinate_descent_tuning"),
    ],
)
def test_torch_takes_no_word_for_on(name: str, module: str, setting: str) -> None:
    """`true` is off to torch, whose source compares with 1 alone: it is not told as on."""
    source = (torch_folder() / module / "config.py").read_text()
    form = rf"^{setting}\b[^=]*= \(?\s*os\.environ\.get\([^)]*\) == \"1\""
    read = re.search(form, source, re.MULTILINE)
    assert read is not None
    assert name in read[0]
    assert list(flag_findings({name: "true"})) == []
    assert [item.kind for item in flag_findings({name: "1"})] == ["flag"]


def test_torch_reads_them() -> None:
    """Each variable of torch that is named here stands in the source of the torch installed."""
    root = torch_folder()
    places = ("_inductor/config.py", "_dynamo/config.py", "_dynamo/eval_frame.py")
    others = ("_functorch/config.py", "compiler/config.py")
    text = "".join((root / name).read_text() for name in (*places, *others))
    text += (root / "_logging" / "_internal.py").read_text()
    names = [flag.name for flag in FLAGS if flag.name.startswith("TORCH")]
    assert names
    assert [name for name in names if name not in text] == []


def test_other_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that hold a file, where their own variable or their default says; with the flag by
    which each travels."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    named = {
        "vllm": tmp_path / "home/.cache/vllm/torch_compile_cache",
        "flashinfer": tmp_path / "base/.cache/flashinfer",
        "deep_gemm": tmp_path / "home/.deep_gemm/cache",
        "tilelang": tmp_path / "home/.tilelang/cache",
        "cute": tmp_path / "tmp/me/cutlass_python_cache",
        "cuda": tmp_path / "driver",
        "torch_extensions": tmp_path / "home/.cache/torch_extensions/py311",
    }
    for folder in named.values():
        folder.mkdir(parents=True)
        (folder / "kernel").write_bytes(bytes(1_500_000))
    (tmp_path / "driver" / "index").write_bytes(bytes(500_000))
    environ = {
        "HOME": str(tmp_path / "home"),
        "USER": "me",
        "CUDA_CACHE_PATH": str(tmp_path / "driver"),
        "FLASHINFER_WORKSPACE_BASE": str(tmp_path / "base"),
    }
    found = {item.cache.name: item for item in other_caches(environ)}
    assert list(found) == [cache.name for cache in CACHES] == list(named)
    assert all(named[name].is_relative_to(item.folder) for name, item in found.items())
    assert found["flashinfer"].folder == named["flashinfer"]
    assert (found["cuda"].files, found["cuda"].bytes) == (2, 2_000_000)
    finding = found["cuda"].finding
    assert (finding.severity, finding.where) == ("hint", str(tmp_path / "driver"))
    assert "the CUDA driver keeps 2 files here, 2.0 MB" in finding.what
    assert f"--extra cuda={tmp_path / 'driver'}" in finding.cure


def test_no_other_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is there, or only an empty folder, or there is no home at all."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / ".deep_gemm").mkdir()
    assert list(other_caches({"HOME": str(tmp_path)})) == []
    assert list(other_caches({})) == []


def _no_temporary_folder() -> str:
    raise FileNotFoundError("no usable temporary directory")


def test_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would lie there is not looked for, and the rest is."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", _no_temporary_folder)
    (tmp_path / ".deep_gemm").mkdir()
    (tmp_path / ".deep_gemm" / "kernel").touch()
    found = other_caches({"HOME": str(tmp_path)})
    assert [item.cache.name for item in found] == ["deep_gemm"]


@pytest.mark.parametrize("variable", ["VLLM_CACHE_ROOT", "XDG_CACHE_HOME"])
def test_a_home_in_a_variable(variable: str) -> None:
    """vLLM reads `~` in them, the others do not."""
    folders = {cache.name: cache.folder({"HOME": "/me", variable: "~/v"}) for cache in CACHES}
    assert folders["vllm"] == Path("/me/v/vllm" if variable == "XDG_CACHE_HOME" else "/me/v")
    other = {"HOME": "/me", "TILELANG_CACHE_DIR": "~/t", "VLLM_CACHE_ROOT": "~other/v"}
    folders = {cache.name: cache.folder(other) for cache in CACHES}
    assert folders["tilelang"] == Path("~/t").absolute()
    assert folders["vllm"] == Path("~other/v").absolute()


def _lock(folder: Path) -> Path:
    """An extension's lock of long ago, where torch looks for it."""
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    os.utime(folder / "lock", (1.0, 1.0))
    return folder / "lock"


@pytest.mark.parametrize("below", ["py311_cpu/ext", "ext"])
def test_the_lock_of_an_extension(tmp_path: Path, below: str) -> None:
    """The file is the lock, so one that a killed build left hangs everybody."""
    environ = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    assert list(left_locks(environ)) == []
    lock = _lock(tmp_path / below)
    (found,) = left_locks(environ)
    assert (found.kind, found.severity, found.where) == ("lock file", "disease", str(lock))
    assert "remove the file" in found.cure


def test_a_build_that_may_be_under_way(tmp_path: Path) -> None:
    """Its lock is new, or a process has it open: nothing is wrong with this machine."""
    environ = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    lock = _lock(tmp_path / "ext")
    with open(lock):
        assert [item.severity for item in left_locks(environ)] == ["hint"]
    os.utime(lock)
    assert [item.severity for item in left_locks(environ)] == ["hint"]


def test_locks_are_looked_for_where_torch_has_them(tmp_path: Path) -> None:
    """Not in all that lies below: the folder may be anything."""
    _lock(tmp_path / "a" / "b" / "c")
    assert list(left_locks({"TORCH_EXTENSIONS_DIR": str(tmp_path)})) == []


def test_a_lock_that_is_held(tmp_path: Path) -> None:
    """By a process that seeds; one that a killed process left is free, and looking makes none."""
    places = under(tmp_path)
    assert not is_held(places)
    assert not places.records.exists()
    lock = lock_of(places)
    take(lock, places, 0)
    assert is_held(places)
    lock.release()
    assert not is_held(places)
    with open(places.records / "lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(places)


def test_the_c_compiler_of_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CC counts alone, else gcc before clang, as Triton looks."""
    for name in ("clang", "gcc", "mine"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert c_compiler({}) == str(tmp_path / "gcc")
    assert c_compiler({"CC": "mine"}) == str(tmp_path / "mine")
    assert c_compiler({"CC": "nothing"}) is None
    os.unlink(tmp_path / "gcc")
    assert c_compiler({}) == str(tmp_path / "clang")
    os.unlink(tmp_path / "clang")
    assert c_compiler({}) is None


def test_python_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python.h lies, or that it does not."""
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme: str(tmp_path))
    assert python_headers() is None
    (tmp_path / "Python.h").touch()
    assert python_headers() == tmp_path
