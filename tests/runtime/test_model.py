"""The model digest: equal for equal models, different for different ones, never in the way."""

from __future__ import annotations

import copy
import functools
import threading
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fresh_processes import FreshProcesses
from torch import Tensor, nn

from cachesvc.runtime.model import model_components, model_name

pytestmark = pytest.mark.xdist_group("runtime")


class Config:
    def __init__(self) -> None:
        self.eps = 1e-5
        self.rope = SimpleNamespace(scaling={"factor": 2.0, "kinds": ["linear", ("ntk", 3)]})
        self.inner: dict[str, Any] = {"deep": [{"deeper": SimpleNamespace(deepest=1)}]}


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x) * self.config.eps
        return out


class Net(nn.Module):
    scale = 2

    def __init__(self) -> None:
        super().__init__()
        config = Config()
        self.config = config
        self.blocks = nn.ModuleList(Block(config) for _ in range(2))
        self.head = nn.Linear(4, 4, bias=False)
        self.register_buffer("mask", torch.zeros(4))
        self.dropout = 0.1

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x) * self.scale
        return out


class Edited(Net):
    """Net as it is after somebody has changed a constant in its forward."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def digest(model: Any) -> str:
    return model_components(model).digest


def net(**changes: Any) -> Net:
    torch.manual_seed(0)
    model = Net()
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def test_equal_models_have_equal_digests() -> None:
    """Weight values, identity and copying do not count."""
    torch.manual_seed(1)
    other = Net()
    assert not torch.equal(other.head.weight, net().head.weight)
    assert digest(other) == digest(net()) == digest(copy.deepcopy(other))


def test_the_device_does_not_count() -> None:
    """A model on the meta device has the digest of the model that is going to run."""
    assert digest(net().to("meta")) == digest(net())


def test_a_later_compile_does_not_count() -> None:
    """A start before torch.compile, after it, and after compile in place finds one bundle."""
    in_place, forward = net(), net()
    in_place.compile()
    forward.forward = torch.compile(forward.forward)  # type: ignore[method-assign]
    found = {digest(model) for model in (net(), torch.compile(net()), in_place, forward)}
    assert len(found) == 1


def change(path: str, value: Any) -> Callable[[Net], None]:
    """Sets what lies at a dotted path."""

    def apply(model: Net) -> None:
        *parents, name = path.split(".")
        owner = functools.reduce(getattr, parents, model)
        setattr(owner, name, value)

    return apply


def untie(model: Net) -> None:
    model.head.weight = model.blocks[0].linear.weight  # type: ignore[union-attr,assignment]


def double_head(model: Net) -> None:
    model.head = nn.Linear(4, 8, bias=False)


def half_head(model: Net) -> None:
    model.head.to(torch.float16)


def transpose_head(model: Net) -> None:
    model.head.weight = nn.Parameter(model.head.weight.data.t())


def hook(model: Net) -> None:
    model.blocks[1].register_forward_hook(lambda module, inputs, output: output * 2)


def own_forward(model: Net) -> None:
    model.forward = lambda x: x  # type: ignore[method-assign,assignment]


def swap(model: Net) -> None:
    model.blocks[0] = nn.Identity()


def share(model: Net) -> None:
    model.blocks[1] = model.blocks[0]


DIFFERENCES: dict[str, tuple[Callable[[Net], None], set[str]]] = {
    "plain attribute": (change("dropout", 0.2), {"attribute dropout"}),
    "attribute of another type": (change("dropout", "0.1"), {"attribute dropout"}),
    "new attribute": (change("_load_balance", 1), {"attribute _load_balance"}),
    "config constant": (change("config.eps", 1e-6), {"config.eps"}),
    "deep in a config": (change("config.rope.scaling", {"factor": 4.0}), {"config.rope.scaling"}),
    "shape": (double_head, {"parameter head.weight", "attribute head.out_features"}),
    "dtype": (half_head, {"parameter head.weight"}),
    "stride": (transpose_head, {"parameter head.weight"}),
    "frozen": (lambda m: m.head.requires_grad_(False), {"parameter head.weight"}),
    "tied": (untie, {"parameter head.weight"}),
    "buffer": (change("mask", torch.zeros(5)), {"buffer mask"}),
    "eval": (lambda m: m.eval(), {"training"}),
    "eval of a part": (lambda m: m.blocks[0].eval(), {"training"}),
    "hook": (hook, {"hooks blocks.1"}),
    "own forward": (own_forward, {"forward ."}),
}
STRUCTURES: dict[str, tuple[Callable[[Net], None], str]] = {
    "another class inside": (swap, "module blocks.0"),
    "one module twice": (share, "module blocks"),
    "__class__ replaced": (change("__class__", Edited), "class"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_a_graph_can_bake_in_counts(name: str) -> None:
    """The digest differs, and the components that do name what was changed and nothing else."""
    apply, components = DIFFERENCES[name]
    changed = net()
    apply(changed)
    differences = model_components(net()).diff(model_components(changed))
    assert {item.component for item in differences} == components


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_structure_counts(name: str) -> None:
    """Another class or another tree has other parts, and one component says where it starts."""
    apply, component = STRUCTURES[name]
    changed = net()
    apply(changed)
    differences = model_components(net()).diff(model_components(changed))
    assert component in {item.component for item in differences}


def test_the_deepest_attribute_of_a_config_counts() -> None:
    """Five containers down a constant is still seen."""
    changed = net()
    changed.config.inner["deep"][0]["deeper"].deepest = 2
    assert digest(changed) != digest(net())


def test_the_code_of_a_class_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method or a constant put into a class, and taken out again, shows."""
    before = model_components(net())
    monkeypatch.setattr(Net, "forward", lambda self, x: x)
    changed = model_components(net())
    monkeypatch.undo()
    monkeypatch.setattr(Net, "scale", 3)
    constant = model_components(net())
    monkeypatch.undo()
    for other in (changed, constant):
        (difference,) = before.diff(other)
        assert difference.component.startswith("code ")
        assert difference.component.endswith(".Net")
    assert model_components(net()) == before


def test_classes_of_one_name_are_told_apart() -> None:
    """A function that makes classes can make two of one name for one model."""

    def made(bias: int) -> nn.Module:
        class Made(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x + self.bias

        Made.bias = bias  # type: ignore[attr-defined]
        return Made()

    one, other = nn.Sequential(made(1), made(2)), nn.Sequential(made(1), made(3))
    (difference,) = model_components(one).diff(model_components(other))
    assert difference.component.endswith("<locals>.Made")
    assert digest(one) == digest(nn.Sequential(made(1), made(2)))


def test_comments_and_places_do_not_count() -> None:
    """The same class at another line, with other comments, in another file, is the same."""
    source = "class Late(nn.Module):\n    def forward(self, x):\n        return x + 1{}\n"
    one: dict[str, Any] = {"nn": nn, "__name__": "late"}
    two = dict(one)
    exec(compile(source.format(""), "/here/late.py", "exec"), one)
    exec(compile("\n\n# moved\n" + source.format("  # plus one"), "/there/late.py", "exec"), two)
    assert digest(one["Late"]()) == digest(two["Late"]())


COMPILES: dict[str, dict[str, Any]] = {
    "mode": {"mode": "max-autotune"},
    "another mode": {"mode": "reduce-overhead"},
    "options": {"options": {"epilogue_fusion": False}},
    "backend": {"backend": "aot_eager"},
    "dynamic": {"dynamic": True},
    "not dynamic": {"dynamic": False},
}


@pytest.mark.parametrize("in_place", [False, True], ids=["wrapped", "in place"])
def test_compile_options_count(in_place: bool) -> None:
    """Each way to ask for another compile has a digest of its own, equally in both forms."""
    digests = {digest(net())}
    for options in COMPILES.values():
        model = net()
        compiled = model if in_place else torch.compile(model, **options)
        if in_place:
            model.compile(**options)
        (difference,) = model_components(net()).diff(model_components(compiled))
        assert difference.component == "compile"
        digests.add(digest(compiled))
    assert len(digests) == len(COMPILES) + 1


def test_both_forms_of_compile_are_one() -> None:
    """torch.compile(model, mode=...) and model.compile(mode=...) find the same bundle."""
    in_place = net()
    in_place.compile(mode="max-autotune")
    assert digest(in_place) == digest(torch.compile(net(), mode="max-autotune"))


def test_a_part_that_is_compiled_by_itself_counts() -> None:
    """Regional compilation makes other graphs; its options are named at the part."""
    whole, part, tuned = net(), net(), net()
    part.blocks[0] = torch.compile(part.blocks[0])  # type: ignore[assignment]
    tuned.blocks[0].compile(mode="max-autotune")
    (difference,) = model_components(whole).diff(model_components(part))
    assert difference.component == "compile blocks.0"
    assert len({digest(whole), digest(part), digest(tuned)}) == 3


def test_salt_counts() -> None:
    """A user's own component makes a bundle of its own."""
    assert model_components(net(), salt="a") != model_components(net(), salt="b")


def test_functions_are_told_apart_by_code_constants_and_modules() -> None:
    """What a function closes over counts: a number, and the shapes of a module."""

    def make(factor: int, model: nn.Module, power: int = 2) -> Callable[[Tensor], Tensor]:
        def step(x: Tensor, power: int = power) -> Tensor:
            out: Tensor = model(x) ** power * factor
            return out

        return step

    small, large = nn.Linear(4, 4), nn.Linear(4, 8)
    base = digest(make(1, small))
    assert base == digest(make(1, nn.Linear(4, 4))) == digest(torch.compile(make(1, small)))
    others = {digest(make(2, small)), digest(make(1, large)), digest(make(1, small, 3))}
    assert len(others | {base}) == 4
    assert digest(lambda x: x) != digest(lambda x: x + 1)


def test_a_bound_method_stands_for_its_module() -> None:
    """Two models' methods of one name are two targets, compiled or not."""
    other = net(dropout=0.5)
    assert digest(net().forward) == digest(torch.compile(net().forward))
    assert digest(net().forward) != digest(other.forward)


def test_callable_objects_are_told_apart_by_class_and_fields() -> None:
    """A partial and an instance with __call__ can be started too."""

    def power(x: Tensor, n: int) -> Tensor:
        return x**n

    @dataclass
    class Step:
        n: int

        def __call__(self, x: Tensor) -> Tensor:
            return x**self.n

    partial = functools.partial
    assert digest(Step(1)) == digest(Step(1)) != digest(Step(2))
    assert digest(partial(power, n=1)) == digest(partial(power, n=1)) != digest(partial(power, n=2))


def test_names_come_from_the_class_or_the_function() -> None:
    """Without a label a bundle has a name that says what it is, whatever the spelling."""
    assert model_name(torch.compile(net())) == "Net"
    assert model_name(digest) == "digest"
    assert model_name(lambda: None) == "lambda"
    assert model_name(functools.partial(digest)) == "partial"


class Raising:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self) -> None: ...


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Posing:
    """Does not even say of which class it is."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError


POSING = Posing()


class Endless(UserDict[int, int]):
    def items(self) -> Iterator[tuple[int, int]]:  # type: ignore[override]
        return ((n, n) for n in iter(int, 1))


class Slotted:
    __slots__ = ("unset", "value")

    def __init__(self, value: int) -> None:
        self.value = value


@dataclass
class Unhashable:
    values: list[int] = field(default_factory=list)

    def __call__(self, *_: Any) -> None: ...


@dataclass
class Node:
    links: list[Node] = field(default_factory=list)


def tangle() -> Node:
    """A thousand objects that each lead to all of them."""
    nodes = [Node() for _ in range(1000)]
    for node in nodes:
        node.links = nodes
    return nodes[0]


def cycle() -> dict[str, Any]:
    found: dict[str, Any] = {"list": []}
    found["self"] = found
    found["list"].append(found)
    return found


def nested() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


ODD: dict[str, Callable[[], Any]] = {
    "cycle": cycle,
    "tangle": tangle,
    "nested": nested,
    "huge dict": lambda: {n: str(n) for n in range(300_000)},
    "huge set": lambda: {str(n) for n in range(300_000)},
    "endless mapping": Endless,
    "lock": threading.Lock,
    "thread": threading.Thread,
    "lambda": lambda: lambda x: x,
    "partial": lambda: functools.partial(print, end=""),
    "raising __getattr__": Raising,
    "raising __getattribute__": lambda: [Hostile()],
    "without a class": lambda: [Posing()],
    "unhashable": Unhashable,
    "generator": lambda: (n for n in range(3)),
    "module": lambda: pytest,
    "lone surrogate": lambda: "\ud800",
    "long integer": lambda: 10**5000,
    "nan": lambda: float("nan"),
    "slice": lambda: slice(1, None),
    "path": Path.cwd,
    "slots": lambda: Slotted(1),
    "keys of all kinds": lambda: {(1, 2): 3, None: 4, 5: 6, Slotted: 7},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_attributes_are_no_trouble(name: str) -> None:
    """Never raises, never hangs; and two equal models stay equal."""
    model, twin = net(), net()
    model.odd, twin.odd = ODD[name](), ODD[name]()
    model.register_forward_hook(Unhashable())
    twin.register_forward_hook(Unhashable())
    assert digest(model) == digest(twin)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Slotted(1), Slotted(2)),
        (slice(1, None), slice(2, None)),
        (functools.partial(print, end=""), functools.partial(print, end="x")),
        ({"a", "b"}, {"a", "c"}),
        (torch.float16, torch.bfloat16),
        (10**5000, 10**5001),
        (b"1", b"2"),
        ((1, 2), (1, 3)),
        ("x" * 1000, "x" * 1001),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_values_of_all_kinds_count(one: Any, other: Any) -> None:
    """What has a value that a graph can bake in is described with that value."""
    assert digest(net(odd=one)) != digest(net(odd=other))


def test_places_and_salted_hashes_do_not_count() -> None:
    """Where a model was loaded from, and hashes that differ in each process, are left out."""
    one, other = net(), net()
    for model, text in ((one, "a"), (other, "b")):
        model.config.name_or_path = text  # type: ignore[attr-defined]
        model.config._original_object_hash = hash(text)  # type: ignore[attr-defined]
        model.config.inner["cache_dir"] = text
        model.cache_path = Path(text)
    assert digest(one) == digest(other)


def test_odd_globals_are_no_trouble() -> None:
    """What code reaches may be anything too."""

    def step(x: Tensor) -> Tensor:
        out: Tensor = x + POSING.value
        return out

    assert digest(step) == digest(step)


def test_lazy_and_odd_modules_are_no_trouble() -> None:
    """A parameter without a shape and a module that holds itself are described."""
    looped = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for child in (looped[0], looped[1]):
        child.up = looped
    assert digest(nn.LazyLinear(2)) != digest(nn.LazyLinear(3))
    assert digest(looped) == digest(copy.deepcopy(looped))


def test_the_first_call_does_not_count(fresh: FreshProcesses) -> None:
    """A push after the calls finds the address of the start before them."""
    same = fresh.run("""
from cachesvc.runtime.model import model_components
models = [Plain(), torch.compile(Plain()), Plain()]
models[2].compile()
before = [model_components(model).digest for model in models]
for model in models:
    model(ones())
result = before + [model_components(model).digest for model in models]
""")
    assert len(set(same)) == 1


MODELS = """
import json, sys
from pathlib import Path
sys.path.insert(0, given["checkout"])
import shipped
from cachesvc.runtime.model import model_components

def components(model):
    return dict(model_components(model))

scope = {"nn": torch.nn, "__name__": "__main__"}
exec('''
class Typed(nn.Module):
    kinds = frozenset
    def forward(self, x, kind="a"):
        return x if kind in {"a", "b", "c", "d"} else [y for y in x if y in ("p", 1.0)]
''', scope)
result = {
    "shipped": components(shipped.Shipped()),
    "function": components(shipped.step),
    "typed": components(scope["Typed"]()),
}
"""

SHIPPED = """
import torch

class Config:
    def __init__(self):
        self.kinds = {"a", "b", "c"}
        self.by_name = dict.fromkeys("xyz", frozenset("pqr"))
        self.where = __file__

class Shipped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.config.here_path = __file__
        del self.config.where
        self.linear = torch.nn.Linear(3, 3)
        self.linear.register_forward_hook(lambda *args: None)

    def forward(self, x):
        return self.linear(x) if "a" in {"a", "b", "zz"} else x

def step(x, flags=("a", 1)):
    return [Shipped().forward(y) for y in x]
"""


def test_processes_hosts_and_checkouts_agree(fresh: FreshProcesses, tmp_path: Path) -> None:
    """Another hash seed, user, home, working directory and checkout give the same digests; a
    class that was typed in and never had a file too."""
    results = []
    for seed in ("1", "2"):
        checkout = tmp_path / f"checkout-{seed}"
        checkout.mkdir()
        (checkout / "shipped.py").write_text(SHIPPED)
        env = {"PYTHONHASHSEED": seed, "USER": f"user-{seed}", "HOME": str(checkout)}
        results.append(
            fresh.run(MODELS, given={"checkout": checkout}, env=env, cwd=checkout, own=True)
        )
    assert results[0] == results[1]
