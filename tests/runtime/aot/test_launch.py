"""Triton kernels: how torch launches them is kept, and done again without Triton."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.capture import NotCaptured
from cachesvc.runtime.aot.launch import launch_of, load_launch
from cachesvc.runtime.aot.source import reduce_module

HEURISTICS: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
STATIC: Any = importlib.import_module("torch._inductor.runtime.static_triton_launcher")
STREAM = 7
SIZES = st.integers(1, 2**31 - 1)
BLOCKS = st.sampled_from([1, 2, 16, 128, 1024])


class Driver:
    """The part of torch that launches machine code, without a GPU: it keeps what it is given."""

    def __init__(self) -> None:
        self.loaded: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def _load_kernel(self, *given: Any) -> tuple[int, int, int, int]:
        self.loaded.append(given)
        return 1, 100 + len(self.loaded), 32, 0

    def _launch_kernel(self, *given: Any) -> None:
        self.launched.append(given)

    def _unload_kernel(self, module: int) -> None:
        raise AssertionError("machine code is never unloaded")


class Config(SimpleNamespace):
    """A configuration as Triton has it."""

    def __init__(self, **blocks: int) -> None:
        super().__init__(kwargs=blocks, num_warps=4, num_stages=1)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    """In the place of the real one, and a directory of Triton's caches."""
    found = Driver()
    monkeypatch.setattr(torch._C, "_StaticCudaLauncher", found, raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(HEURISTICS, "Config", Config)
    return found


def _result(meta: Mapping[str, Any], names: str, types: str, blocks: Mapping[str, int]) -> Any:
    """What torch has compiled a kernel to, with `types` for the last of its arguments."""
    static = STATIC.StaticallyLaunchedCudaKernel.__new__(STATIC.StaticallyLaunchedCudaKernel)
    arguments = names.split()
    constants = [n for n, name in enumerate(arguments) if name.isupper()]
    vars(static).update(
        name="some_kernel",
        hash="00" * 32,
        cubin_path="where it was compiled",
        cubin_raw=None,
        arg_names=arguments,
        declared_constexprs=constants,
        full_constexprs=constants,
        num_warps=4,
        shared=512,
        arg_tys=types,
        has_global_scratch=True,
        has_profile_scratch=False,
        function=None,
        module=None,
    )
    compiled = {"constants": {}, "signature": dict.fromkeys(arguments, "i32"), "device": 0}
    return HEURISTICS.StaticTritonCompileResult(static, Config(**blocks), compiled, meta)


def _kernel(*launchers: Any, results: tuple[Any, ...] = ()) -> Any:
    return SimpleNamespace(
        fn=SimpleNamespace(__name__="some_kernel"),
        launchers=list(launchers),
        compile_results=list(results),
        inductor_meta={},
        triton_meta={"device": 0, "device_type": "cuda"},
        heuristic_type=None,
    )


def _made(meta: Mapping[str, Any], names: str, types: str, **blocks: int) -> Any:
    """A kernel that torch has made ready, with its machine code in Triton's cache."""
    launcher = _result(meta, names, types, blocks).make_launcher()
    folder = Path(HEURISTICS.triton_cache_dir(0)) / launcher.cache_hash
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "some_kernel.cubin").write_bytes(b"machine code")
    return _kernel(launcher)


def _again(kernel: Any) -> Any:
    """The kernel as another process loads it."""
    launch = launch_of(kernel)
    return load_launch(json.loads(json.dumps(launch.to_json())), launch.cubin)


POINTWISE = {"grid_type": "Grid1D"}


def test_a_launch_is_made_again(driver: Driver) -> None:
    """Function, grid, warps, shared memory, types and arguments are those that torch gives, with
    the null pointer that Triton wants at the end."""
    kernel = _made(POINTWISE, "in_ptr0 out_ptr0 xnumel", "OOi", XBLOCK=128)
    kernel.launchers[0]("a", "b", 1000, stream=STREAM)
    _again(kernel).run("a", "b", 1000, stream=STREAM)
    by_torch, by_us = driver.launched
    assert by_us[1:] == by_torch[1:]
    assert by_us == (102, 8, 1, 1, 4, 512, "OOiO", ("a", "b", 1000, None), STREAM)


def test_machine_code_is_loaded_once(driver: Driver) -> None:
    """At the first launch, from the file beside the function, and never unloaded."""
    kernel = _made(POINTWISE, "in_ptr0 xnumel", "Oi", XBLOCK=128)
    driver.loaded.clear()
    loaded = _again(kernel)
    assert not driver.loaded
    for _ in range(2):
        loaded.run("a", 1000, stream=STREAM)
    cubin = launch_of(kernel).cubin
    assert driver.loaded == [(str(cubin), "some_kernel", 512, 0)]
    assert cubin.read_bytes() == b"machine code"
    loaded.load()
    assert len(driver.loaded) == 1


COMBO = {"num_kernels": 2, "min_blocks": 0, "default_config": {"XBLOCK": 64, "YBLOCK": 32}}
COMBO |= {"no_x_dim_0": False, "no_x_dim_1": True, "xnumel_0": None, "xnumel_1": 77}
COMBO |= {"ynumel_0": None, "ynumel_1": 5}
XYZ = "xnumel ynumel znumel"
GRIDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"grid_type": "Grid1D"}, "xnumel"),
    ({"grid_type": "Grid2D"}, "xnumel ynumel"),
    ({"grid_type": "Grid3D"}, XYZ),
    ({"grid_type": "BatchMatmulGrid3D"}, XYZ),
    ({"grid_type": "Grid2DWithYZOverflow"}, "xnumel ynumel"),
    ({"grid_type": "MixOrderReductionGrid"}, "xnumel"),
    ({"grid_type": "CooperativeReductionGrid"}, "xnumel"),
    ({"grid_type": "SplitScanGrid"}, "xnumel r0_numel"),
    ({"grid_type": "SequentialComboKernelGrid", "combo_grid_meta": COMBO}, "xnumel_0 ynumel_0"),
    ({"grid_type": "RoundRobinComboKernelGrid", "combo_grid_meta": COMBO}, "xnumel_0 ynumel_0"),
)


@given(
    kind=st.sampled_from(GRIDS),
    sizes=st.tuples(SIZES, SIZES, SIZES),
    blocks=st.tuples(BLOCKS, BLOCKS, BLOCKS),
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_grids_are_torchs(
    driver: Driver,
    kind: tuple[dict[str, Any], str],
    sizes: tuple[int, ...],
    blocks: tuple[int, int, int],
) -> None:
    """For every kind of grid that Inductor has, and any size."""
    meta, names = kind
    given_sizes = dict(zip(names.split(), sizes, strict=False))
    chosen = {"XBLOCK": blocks[0], "YBLOCK": blocks[1], "ZBLOCK": blocks[2]}
    if meta["grid_type"] == "SplitScanGrid":
        chosen = {"XBLOCK": 1, "R0_BLOCK": blocks[1]}
    chosen |= {"RSPLIT": 8, "RSPLIT_SIZE": 4 * blocks[0]}
    kernel = _made(meta, names, "i" * len(given_sizes), **chosen)
    _again(kernel).run(*given_sizes.values(), stream=STREAM)
    said = HEURISTICS.GridExpr.from_meta(meta, chosen).eval_slow(given_sizes)
    assert driver.launched[-1][1:4] == said


def test_a_grid_that_the_caller_gives(driver: Driver) -> None:
    """As templates of matrix products have it: the grid comes after the arguments."""
    meta = HEURISTICS.FixedGrid.setup_grid_as_args()
    _again(_made(meta, "arg_A out_ptr0", "OO")).run("a", "b", 32, 2, 1, stream=STREAM)
    assert driver.launched[-1][1:] == (32, 2, 1, 4, 512, "OOO", ("a", "b", None), STREAM)


def test_every_kind_of_grid_is_tried() -> None:
    """None of those that this torch has is missing from the table, but for those that name their
    own arguments."""
    known = {str(meta["grid_type"]) for meta, _ in GRIDS}
    named = {"FixedGrid", "PrecomputedGrid", "ComboKernelGrid", "SequentialFlattenComboKernelGrid"}
    kinds = HEURISTICS.GridExpr.__subclasses__() + HEURISTICS.ComboKernelGrid.__subclasses__()
    assert {kind.__name__ for kind in kinds} == known | named


def test_an_untuned_kernel(driver: Driver) -> None:
    """Several configurations are left: it must run first."""
    launchers = _made(POINTWISE, "xnumel", "i", XBLOCK=128).launchers
    with pytest.raises(NotCaptured, match="some_kernel has not run"):
        launch_of(_kernel(*launchers, *launchers))


def test_a_kernel_that_triton_launches(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made ready without Triton, as those that users write; or torch's reason is told."""
    static = _result(POINTWISE, "in_ptr0 xnumel", "Oi", {"XBLOCK": 128})
    _made(POINTWISE, "xnumel", "i", XBLOCK=128)
    config = Config(XBLOCK=128)
    theirs = SimpleNamespace(
        kernel=_compiled("some_kernel"),
        config=config,
        compile_meta=static.compile_meta,
        inductor_meta=POINTWISE,
    )
    kernel = _kernel(SimpleNamespace(config=config), results=(theirs,))
    kind = HEURISTICS.StaticTritonCompileResult
    monkeypatch.setattr(kind, "can_statically_launch", lambda *_: static.kernel)
    _again(kernel).run("a", 1000, stream=STREAM)
    assert driver.launched[-1][1:] == (8, 1, 1, 4, 512, "OiO", ("a", 1000, None), STREAM)

    def refused(*_: Any) -> Any:
        raise HEURISTICS.CannotStaticallyLaunchKernel("it is a cooperative one")

    monkeypatch.setattr(kind, "can_statically_launch", refused)
    with pytest.raises(NotCaptured, match="it is a cooperative one"):
        launch_of(kernel)


def _compiled(name: str) -> Any:
    """A kernel as Triton has compiled it."""
    return SimpleNamespace(hash="00" * 32, src=SimpleNamespace(fn=SimpleNamespace(__name__=name)))


def test_a_long_name(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton cuts the name of the file, and torch does not find it: it is put there whole, too."""
    name = "k" * 160
    folder = tmp_path / HEURISTICS.triton_hash_to_path_key("00" * 32)
    folder.mkdir()
    (folder / f"{name[:150]}.cubin").write_bytes(b"machine code")
    config = Config(XBLOCK=128)
    result = SimpleNamespace(kernel=_compiled(name), config=config, compile_meta={})
    kernel = _kernel(SimpleNamespace(config=config), results=(result,))
    refused = HEURISTICS.CannotStaticallyLaunchKernel("it was looked for")

    def looks(*_: Any) -> Any:
        assert (folder / f"{name}.cubin").read_bytes() == b"machine code"
        raise refused

    monkeypatch.setattr(HEURISTICS.StaticTritonCompileResult, "can_statically_launch", looks)
    with pytest.raises(NotCaptured, match="it was looked for"):
        launch_of(kernel)


def test_machine_code_that_is_gone(driver: Driver, tmp_path: Path) -> None:
    """A kernel whose file was deleted is not captured, and the text says where it was."""
    kernel = _made(POINTWISE, "xnumel", "i", XBLOCK=128)
    launch_of(kernel).cubin.unlink()
    with pytest.raises(NotCaptured, match=f"some_kernel is not in {tmp_path}"):
        launch_of(kernel)


def test_a_launcher_of_a_later_torch(driver: Driver) -> None:
    """What is not as it is known is no crash, but not captured."""
    kernel = _made(POINTWISE, "xnumel", "i", XBLOCK=128)
    with pytest.raises(NotCaptured, match="cannot be read: AttributeError"):
        launch_of(SimpleNamespace(fn=kernel.fn, launchers=[SimpleNamespace(_is_static=True)]))
    namespace: dict[str, Any] = {"runner": kernel.launchers[0].__globals__["runner"]}
    exec("def launcher(xnumel, stream):\n    runner(numpy.ceil(xnumel), 1, 1, stream)", namespace)
    launcher = namespace["launcher"]
    launcher._is_static, launcher.cache_hash = True, kernel.launchers[0].cache_hash
    with pytest.raises(NotCaptured, match="names numpy"):
        launch_of(_kernel(launcher))


def test_torch_without_a_launcher(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function with such kernels is not loaded at all, rather than failing at a call."""
    launch = launch_of(_made(POINTWISE, "xnumel", "i", XBLOCK=128))
    monkeypatch.delattr(torch._C, "_StaticCudaLauncher")
    with pytest.raises(TccacheError, match="launches no kernel by itself"):
        load_launch(dict(launch.to_json()), launch.cubin)  # type: ignore[arg-type]


def _modules(tree: Path) -> list[str]:
    """The modules that Inductor generated for graphs on an H200: inference, forward, backward, and
    an optimizer's step."""
    texts = [file.read_text() for file in sorted((tree / "inductor").glob("*/*.py"))]
    return [text for text in texts if "async_compile.wait(" in text]


def test_generated_modules_are_reduced(h200_tree: Path) -> None:
    """Each names its Triton kernels and calls them by `run` alone; nothing of Inductor, and nothing
    of Triton, is imported."""
    modules = _modules(h200_tree)
    assert len(modules) == 4
    for text in modules:
        reduced = reduce_module(text)
        assert {kind for _, kind in reduced.kernels} == {"triton"}
        assert not {n for n in reduced.code.co_names if "triton" in n or "inductor" in n}
        called = set(_runs(text))
        assert called == {name for name, _ in reduced.kernels}


def _runs(text: str) -> list[str]:
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [
        function.value.id
        for function in calls
        if isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.attr == "run"
    ]
