"""Values in a model that are easily described wrongly: arrays, wrappers of tensors, kernels."""

from __future__ import annotations

import collections
import enum
import functools
import json
import logging
import random
import re
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fresh_processes import FreshProcesses
from torch import nn

from cachesvc.runtime.model import model_components

pytestmark = pytest.mark.xdist_group("runtime")


def digest(value: Any) -> str:
    model = nn.Linear(1, 1)
    model.odd = value
    return model_components(model).digest


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


Point = collections.namedtuple("Point", "x y")


class Named(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("runs while it is looked at")


COUNTS: dict[str, tuple[Any, Any]] = {
    "array": (np.arange(3), np.arange(1, 4)),
    "dtype of an array": (np.zeros(3, np.int32), np.zeros(3, np.int64)),
    "numpy's scalar": (np.float32(1), np.float32(2)),
    "its type": (np.float32(1), np.float64(1)),
    "enum": (Colour.RED, Colour.BLUE),
    "pattern": (re.compile("a+"), re.compile("a*")),
    "flags of a pattern": (re.compile("a"), re.compile("a", re.IGNORECASE)),
    "size": (torch.Size([1, 2]), torch.Size([1, 3])),
    "named tuple": (Point(1, 2), Point(1, 3)),
    "mapping proxy": (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
    "dict of its own class": (Named(a=1), Named(a=2)),
    "text like a number": ("1", 1),
    "text like nothing": ("null", None),
    "true": (True, 1),
    "complex": (1j, 2j),
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_a_graph_can_bake_in_counts(name: str) -> None:
    """Each of these has a value of its own, and the same one each time."""
    one, other = COUNTS[name]
    assert digest(one) == digest(one) != digest(other)


def called(times: int) -> Any:
    @functools.lru_cache
    def cached(x: int) -> int:
        return x

    for number in range(times):
        cached(number)
    return cached


ASIDE: dict[str, Callable[[int], Any]] = {
    "device": lambda n: torch.device("cuda", n),
    "default dict": lambda n: collections.defaultdict(list, {n: []}),
    "counter": lambda n: collections.Counter([n]),
    "lock": lambda n: threading.Lock(),
    "logger": lambda n: logging.getLogger(str(n)),
    "weak reference": lambda n: weakref.ref(Colour),
    "random numbers": random.Random,
    "torch's random numbers": lambda n: torch.Generator().manual_seed(n),
    "path": lambda n: Path(str(n)),
    "thread": lambda n: threading.Thread(name=str(n)),
    "values of a tensor": lambda n: torch.full((2,), n),
    "a cached function that was called": called,
}


@pytest.mark.parametrize("name", ASIDE)
def test_what_differs_between_processes_does_not_count(name: str) -> None:
    """Devices, places, identities and contents of caches."""
    assert digest(ASIDE[name](1)) == digest(ASIDE[name](2))


def test_a_device_in_an_attribute_does_not_count() -> None:
    """Many models keep the place where they run, as a text or a number."""
    one, other = nn.Linear(1, 1), nn.Linear(1, 1)
    one.device, other.device = "cpu", "cuda:0"  # type: ignore[assignment]
    one.input_device, other.input_device = 0, 1  # type: ignore[assignment]
    assert model_components(one) == model_components(other)


def rounding() -> int:
    return 1


class Wrapped(torch.Tensor):
    """A quantized weight, as libraries have them: an inner tensor and a scale."""

    def __new__(cls, inner: torch.Tensor, scale: float) -> Wrapped:
        made: Wrapped = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, dtype=torch.float32
        )
        made.inner, made.scale = inner, scale
        return made

    inner: torch.Tensor
    scale: float

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], {"scale": self.scale}

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        rounding()
        given = args[0]
        return Wrapped(function(given.inner, *args[1:], **(kwargs or {})), given.scale)


def wrapped(dtype: torch.dtype = torch.int8, scale: float = 2.0, fill: int = 0) -> nn.Module:
    model = nn.Module()
    model.register_buffer("weight", Wrapped(torch.full((2, 2), fill).to(dtype), scale))
    return model


def test_wrappers_of_tensors_count_with_what_lies_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner dtype and the wrapper's context are named; inner values are weights. The code of the
    subclass and what it calls are followed."""
    before = model_components(wrapped())
    assert before == model_components(wrapped(fill=3))
    for other in (wrapped(dtype=torch.int16), wrapped(scale=3.0)):
        (difference,) = before.diff(model_components(other))
        assert difference.component == "buffer weight"
    monkeypatch.setattr(rounding, "__code__", (lambda: 2).__code__)
    (difference,) = before.diff(model_components(wrapped()))
    assert difference.component.endswith(".rounding")


def backend(graph: Any, inputs: Any) -> Any:
    return graph.forward


def test_the_code_of_a_users_backend_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that compiles graphs decides what comes out."""
    model = torch.compile(nn.Linear(1, 1), backend=backend)
    before = model_components(model)
    monkeypatch.setattr(backend, "__code__", (lambda graph, inputs: graph).__code__)
    (difference,) = before.diff(model_components(model))
    assert difference.component.endswith(".backend")


def test_a_text_is_no_reference() -> None:
    """A value that looks like a reference to another place is told apart from it."""
    assert digest(["at", "config"]) != digest({"at": "config"})


KERNEL = """
import sys
sys.path.append(given["triton"])
import triton
import triton.language as tl
from cachesvc.runtime.model import model_components

SCOPE = '''
import torch, triton, triton.language as tl
SIZE: tl.constexpr = tl.constexpr({size})
@triton.jit
def inner(x):
    return x * {factor}
@triton.jit
def kernel(x, SIZE_: tl.constexpr):
    return inner(x) + SIZE
class Model(torch.nn.Module):
    def forward(self, x):
        kernel[(1,)](x, 4)
        return x
'''
import linecache, types
def components(**values):
    module = types.ModuleType("kernels")
    source = SCOPE.format(**values)
    linecache.cache["kernels.py"] = (len(source), None, source.splitlines(True), "kernels.py")
    sys.modules["kernels"] = module
    exec(compile(source, "kernels.py", "exec"), vars(module))
    return model_components(module.Model())

base = components(size=1, factor=2)
result = [
    [item.component for item in base.diff(other)]
    for other in (
        components(size=1, factor=2), components(size=2, factor=2), components(size=1, factor=3)
    )
]
"""


def test_kernels_of_triton_are_followed(fresh: FreshProcesses) -> None:
    """A kernel's code, what it calls and the constants that it takes from its module."""
    triton = Path(__file__).parents[2] / ".venv" / "triton"
    if not (triton / "triton").is_dir():
        pytest.skip("Triton is not installed")
    same, constant, called = fresh.run(KERNEL, given={"triton": triton})
    assert same == []
    assert {name.removesuffix(".value") for name in constant} == {
        "global kernels.SIZE",
        "global kernels.SIZE.type",
    }
    assert called == ["global kernels.inner"]


COMMAND = """
import json, sys, torch
SCALE = 2
def helper(x):
    return x * SCALE
class Typed(torch.nn.Module):
    def forward(self, x):
        return helper(x)
from cachesvc.runtime.model import model_components
json.dump(dict(model_components(Typed())), sys.stdout)
"""


def test_a_command_line_is_followed(tmp_path: Path) -> None:
    """`python -c` has no file; two such processes agree, and a changed constant is named."""
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, check=True
            ).stdout
        )
        for source in (COMMAND, COMMAND, COMMAND.replace("SCALE = 2", "SCALE = 3"))
    ]
    assert found[0] == found[1]
    assert {name for name in found[0] if found[0][name] != found[2].get(name)} == {
        "global __main__.SCALE"
    }
