"""What a model's code reaches: each change to it is named, and nothing else is."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh_processes import FreshProcesses

from cachesvc.core.components import Components
from cachesvc.runtime.model import model_components

pytestmark = pytest.mark.xdist_group("runtime")

HELPERS = """
import functools
import torch
from torch import nn
from torch.nn import functional as F

GAIN = 3.0
CACHE = {}
CALLS = []
COUNT = 0
_lazy = None
WEIGHTS = {"a": 1.0, "b": [2.0, 3.0]}
KINDS = {"x", "y"}

def scale(x):
    return x * GAIN

def double(x):
    return x * 2

def triple(x):
    return x * 3

def unused(x):
    return x * UNUSED

UNUSED = 1

ACTIVATIONS = {"double": double, "triple": triple, "gelu": F.gelu}

def remember(x):
    global COUNT, _lazy
    COUNT += 1
    CACHE[tuple(x.shape)] = COUNT
    CALLS.append(COUNT)
    if _lazy is None:
        _lazy = [1]
    return x + len(CACHE) * 0

@functools.lru_cache(maxsize=None)
def powers(n):
    return tuple(BASE**i for i in range(n))

BASE = 2

def decorated(offset):
    def wrap(function):
        @functools.wraps(function)
        def inner(x):
            return function(x) + offset
        return inner
    return wrap

@decorated(offset=5)
def shifted(x):
    return x - 1

def make(factor):
    def made(x):
        return x * factor
    return made

class Settings:
    def __init__(self):
        self.width = 4
        self.names = ["p", "q"]

class Scaler:
    bias = 1.0

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.apply(x) + self.bias

    def apply(self, x):
        return x * self.factor * SCALER

    def never(self, x):
        return x * UNUSED

SCALER = 1.5

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * SQUARE

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x * backward_factor()

SQUARE = 1.0

def backward_factor():
    return 1.0

@torch.compile(backend="eager")
def compiled(x):
    return x + COMPILED

COMPILED = 4

NET = nn.Linear(4, 4)
MASK = torch.zeros(3)
"""

APP = """
import functools
import math
import torch
from torch import nn
from torch.nn import functional as F
import helpers
from helpers import double as twice, shifted

EPS = 1e-5
MODE = "fast"
LIMITS = (1, 2)
SETTINGS = helpers.Settings()
SCALER = helpers.Scaler(2.0)
first, second = helpers.make(1), helpers.make(2)
part = functools.partial(helpers.triple)
squash = F.relu

class Config:
    def __init__(self):
        self.eps = 1e-6
        self.act = "double"

    @property
    def inverse(self):
        return 1 / INVERSE

INVERSE = 2

def base(x):
    return x + EPS

class Base(nn.Module):
    table = {"low": 1, "high": [2, 3]}
    seen = {}

    def forward(self, x, gain=2.0):
        return self.inner(x) * gain + self.table["low"]

    def inner(self, x):
        raise NotImplementedError

class Net(Base):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.steps = 0
        self.history = []
        self.sizes = [1, 2]
        self.plain = [nn.Linear(4, 4)]
        self.act = helpers.triple

    def inner(self, x):
        self.steps += 1
        self.history.append(1)
        self.seen[x.shape[0]] = True
        if MODE == "fast" and LIMITS:
            x = base(x) * math.pi
        x = helpers.scale(x) + self.config.inverse
        x = helpers.ACTIVATIONS[self.config.act](x)
        x = helpers.remember(x) + SETTINGS.width
        x = SCALER(x) + sum(helpers.powers(3)) + shifted(x)
        x = first(second(x)) + part(x) + twice(x) + squash(x)
        x = helpers.Square.apply(x) + helpers.compiled(x)
        x = helpers.NET(x) + helpers.MASK.sum() + helpers.WEIGHTS["a"] + len(helpers.KINDS)
        return sum(map(lambda y: y * helpers.GAIN, [self.act(x)])) + self.plain[0](x)

    def save(self, path):
        return SAVED

SAVED = 1
"""


class World:
    """The two modules as they are after an edit, and their model."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def build(self, old: str = "", new: str = "") -> types.ModuleType:
        assert old in HELPERS + APP
        made: types.ModuleType | None = None
        for name, source in (("helpers", HELPERS), ("app", APP)):
            made = types.ModuleType(name)
            self._patch.setitem(sys.modules, name, made)
            exec(compile(source.replace(old, new) if old else source, name, "exec"), vars(made))
        assert made is not None
        return made

    def components(self, old: str = "", new: str = "") -> Components:
        return model_components(self.build(old, new).Net())


@pytest.fixture
def world() -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        yield World(patch)


EDITS: dict[str, tuple[str, str, set[str]]] = {
    "helper": ("return x * GAIN", "return x / GAIN", {"function helpers.scale"}),
    "constant of a helper": ("GAIN = 3.0", "GAIN = 4.0", {"global helpers.GAIN"}),
    "helper in the same module": ("return x + EPS", "return x - EPS", {"function app.base"}),
    "constant": ("EPS = 1e-5", "EPS = 1e-4", {"global app.EPS"}),
    "its type": ('MODE = "fast"', "MODE = 1", {"global app.MODE"}),
    "tuple": ("LIMITS = (1, 2)", "LIMITS = (1, 3)", {"global app.LIMITS"}),
    "table": ('"b": [2.0, 3.0]', '"b": [2.0, 4.0]', {"global helpers.WEIGHTS"}),
    "set": ('{"x", "y"}', '{"x", "z"}', {"global helpers.KINDS"}),
    "function in a table": ("return x * 3", "return x * 3.5", {"function helpers.triple"}),
    "entry of a table": ('"gelu": F.gelu', '"gelu": F.silu', {"global helpers.ACTIVATIONS"}),
    "cached helper": ("BASE**i", "BASE**(i + 1)", {"function helpers.powers"}),
    "constant of a cached helper": ("BASE = 2", "BASE = 3", {"global helpers.BASE"}),
    "decorated helper": ("return x - 1", "return x - 2", {"function helpers.shifted"}),
    "decorator": ("+ offset", "- offset", {"function helpers.shifted"}),
    "argument of a decorator": ("offset=5", "offset=6", {"function helpers.shifted"}),
    "closure": ("helpers.make(2)", "helpers.make(3)", {"global app.second"}),
    "closures swapped": (
        "helpers.make(1), helpers.make(2)",
        "helpers.make(2), helpers.make(1)",
        {"global app.first", "global app.second"},
    ),
    "partial": (
        "partial(helpers.triple)",
        "partial(helpers.triple, x=1)",
        {"global app.part"},
    ),
    "alias of torch's": ("squash = F.relu", "squash = F.gelu", {"global app.squash"}),
    "import of another": (
        "double as twice",
        "triple as twice",
        {"global app.twice"},
    ),
    "field of a global object": ("width = 4", "width = 5", {"global app.SETTINGS.width"}),
    "its class": (
        '["p", "q"]\n',
        '["p", "q"]\n    depth = 1\n',
        {"code helpers.Settings"},
    ),
    "callable object": ("Scaler(2.0)", "Scaler(3.0)", {"global app.SCALER.factor"}),
    "method of it": ("* SCALER", "+ SCALER", {"code helpers.Scaler"}),
    "constant of its method": ("SCALER = 1.5", "SCALER = 2.5", {"global helpers.SCALER"}),
    "class constant": ("bias = 1.0", "bias = 2.0", {"code helpers.Scaler"}),
    "autograd forward": ("x * x * SQUARE", "x * x + SQUARE", {"code helpers.Square"}),
    "autograd constant": ("SQUARE = 1.0", "SQUARE = 2.0", {"global helpers.SQUARE"}),
    "autograd helper": (
        "factor():\n    return 1.0",
        "factor():\n    return 2.0",
        {"function helpers.backward_factor"},
    ),
    "compiled helper": ("x + COMPILED", "x - COMPILED", {"function helpers.compiled"}),
    "constant of a compiled helper": ("COMPILED = 4", "COMPILED = 5", {"global helpers.COMPILED"}),
    "global module": (
        "NET = nn.Linear(4, 4)",
        "NET = nn.Linear(4, 4, bias=False)",
        {"parameter helpers.NET.bias"},
    ),
    "global tensor": ("torch.zeros(3)", "torch.zeros(4)", {"global helpers.MASK"}),
    "field of a config": ("self.eps = 1e-6", "self.eps = 1e-5", {"config.eps"}),
    "property of a config": ("1 / INVERSE", "2 / INVERSE", {"code app.Config"}),
    "constant of a property": ("INVERSE = 2", "INVERSE = 3", {"global app.INVERSE"}),
    "table of a class": ('"low": 1', '"low": 2', {"code app.Base"}),
    "default of a method": ("gain=2.0", "gain=3.0", {"code app.Base"}),
    "own list": ("self.sizes = [1, 2]", "self.sizes = [1, 3]", {"attribute sizes"}),
    "module in a plain list": (
        "self.plain = [nn.Linear(4, 4)]",
        "self.plain = [nn.Linear(4, 4, bias=False)]",
        {"parameter plain.0.bias"},
    ),
    "function in an attribute": (
        "self.act = helpers.triple",
        "self.act = helpers.double",
        {"attribute act"},
    ),
    "lambda inside": ("lambda y: y *", "lambda y: y +", {"code app.Net"}),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_changes_the_component_of_its_name(world: World, name: str) -> None:
    """Whatever code can reach counts; the components that differ name it and nothing else."""
    old, new, components = EDITS[name]
    differences = world.components().diff(world.components(old, new))
    assert {difference.component for difference in differences} == components


UNREACHED = {
    "helper that nothing calls": ("x * UNUSED\n\nUNUSED", "x + UNUSED\n\nUNUSED"),
    "constant of it": ("UNUSED = 1", "UNUSED = 2"),
    "constant of a method that nothing calls": ("SAVED = 1", "SAVED = 2"),
    "a comment": ("def double(x):", "def double(x):  # twice"),
    "a line": ("BASE = 2", "\n\nBASE = 2"),
}


@pytest.mark.parametrize("name", UNREACHED)
def test_what_is_not_reached_does_not_count(world: World, name: str) -> None:
    """Edits elsewhere cost no bundle."""
    assert world.components() == world.components(*UNREACHED[name])


def test_what_the_code_writes_itself_is_no_constant(world: World) -> None:
    """Counters, caches and lists that grow in a call leave the digest as it was before."""
    model = world.build().Net()
    before = model_components(model)
    for batch in (1, 2):
        model(torch.ones(batch, 4))
    assert model.steps == 2
    assert sys.modules["helpers"].COUNT == 2  # type: ignore[attr-defined]
    assert model_components(model).diff(before) == ()


def test_a_replaced_helper_counts(world: World) -> None:
    """What another module puts in a helper's place is what runs."""
    app = world.build()
    before = model_components(app.Net())
    sys.modules["helpers"].scale = lambda x: x  # type: ignore[attr-defined]
    after = model_components(app.Net())
    names = {difference.component for difference in before.diff(after)}
    assert names == {"function helpers.scale", "global helpers.scale"}


def test_a_replaced_function_of_torch_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of torch's are looked up too: somebody may have put code of their own there."""
    app = world.build("math.pi", "F.elu(x)")
    before = model_components(app.Net())
    monkeypatch.setattr(torch.nn.functional, "elu", app.base)
    (difference,) = before.diff(model_components(app.Net()))
    assert difference.component == "global torch.nn.functional.elu"


def test_functions_as_models_are_followed(world: World) -> None:
    """A function's helpers and globals count as those of a module's forward do."""

    def named(old: str, new: str) -> set[str]:
        one = model_components(world.build().base)
        other = model_components(world.build(old, new).base)
        return {difference.component for difference in one.diff(other)}

    assert named("EPS = 1e-5", "EPS = 1e-4") == {"global app.EPS"}
    assert "function app.base" in named("return x + EPS", "return x - EPS")


def test_hooks_for_all_modules_count() -> None:
    """torch has hooks that run at every module's call."""
    model = torch.nn.Linear(2, 2)
    before = model_components(model)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *args: None)
    try:
        (difference,) = before.diff(model_components(model))
    finally:
        handle.remove()
    assert difference.component == "hooks torch"
    assert model_components(model) == before


def test_custom_operators_count() -> None:
    """Their code and that of their fake, by the function or through torch.ops."""

    def made(factor: int, fake: int) -> tuple[Any, Callable[..., Any]]:
        @torch.library.custom_op("tccache_test::grow", mutates_args=())
        def grow(x: torch.Tensor) -> torch.Tensor:
            return x * factor

        @grow.register_fake
        def _(x: torch.Tensor) -> torch.Tensor:
            return torch.empty_like(x) if fake else x.clone()

        return grow, lambda x: torch.ops.tccache_test.grow(x) * 1

    results = [
        (model_components(op), model_components(call))
        for op, call in starmap(made, [(1, 1), (1, 1), (2, 1), (1, 0)])
    ]
    assert results[0] == results[1]
    assert len({op.digest for op, _ in results}) == 3
    (difference,) = results[0][1].diff(results[2][1])
    assert difference.component == "global tccache_test::grow"


TYPED = """
import torch
FACTOR = {factor}
def helper(x):
    return x * FACTOR
class Typed(torch.nn.Module):
    def forward(self, x):
        return helper(x)
"""


@pytest.mark.parametrize("name", ["__main__", "typed", None])
def test_code_without_a_file_is_followed(name: str | None) -> None:
    """Typed in, given to `python -c` or to exec: with and without a module's name."""

    def components(factor: int) -> Components:
        scope: dict[str, Any] = {} if name is None else {"__name__": name}
        exec(TYPED.format(factor=factor), scope)
        return model_components(scope["Typed"]())

    (difference,) = components(1).diff(components(2))
    assert difference.component.endswith(".FACTOR")
    assert components(1) == components(1)


LAZY = {
    "__init__.py": "",
    "model.py": """
import torch
class Late(torch.nn.Module):
    def forward(self, x):
        from .inner import scale
        return scale(x)
""",
    "inner.py": "from lazily import deeper\ndef scale(x):\n    return x * deeper.FACTOR\n",
    "deeper.py": "FACTOR = 2\n",
}


def test_an_import_inside_a_function_is_followed(fresh: FreshProcesses, tmp_path: Path) -> None:
    """Whether the module was loaded yet or not, and with what it imports in turn; none is loaded
    for it."""
    package = tmp_path / "lazily"
    package.mkdir()
    for name, text in LAZY.items():
        (package / name).write_text(text)
    before, loaded, after, edited = fresh.run(
        """
sys.path.insert(0, given["folder"])
sys.dont_write_bytecode = True
from lazily.model import Late
from cachesvc.runtime.model import model_components
before = model_components(Late())
loaded = "lazily.inner" in sys.modules
Late()(ones())
result = [dict(before), loaded, dict(model_components(Late()))]
with open(os.path.join(given["folder"], "lazily", "deeper.py"), "a") as file:
    print("MORE = 2", file=file)
result.append([item.component for item in before.diff(model_components(Late()))])
""",
        given={"folder": tmp_path},
    )
    assert not loaded
    assert before == after
    assert edited == ["import lazily.deeper"]
