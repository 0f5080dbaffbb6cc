"""Regions: what repeats is compiled once for all of its places, in place, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import cachesvc
from cachesvc.core.errors import UsageError
from cachesvc.runtime import regions
from cachesvc.runtime.backend import is_compiled, is_compiled_itself
from cachesvc.runtime.eager import eagerly, run_eagerly
from cachesvc.runtime.model import model_components
from cachesvc.runtime.regions import compile_regions

pytestmark = [
    pytest.mark.xdist_group("runtime"),
    # torch hides it where it asks for the gradient of an input, unless warnings are errors
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


class Compiler:
    """A compiler that notes the inputs of each graph, and each run of one."""

    def __init__(self) -> None:
        self.graphs: list[list[Any]] = []
        self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any], **_: Any) -> Any:
        self.graphs.append(inputs)

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


@pytest.fixture(autouse=True)
def compiler() -> Iterator[Compiler]:
    """What was compiled, and run; nothing is left of it for the next test."""
    torch._dynamo.reset()
    yield Compiler()
    torch._dynamo.reset()


GRAPHS = {"triton.cudagraphs": True}


class Block(nn.Module):
    """Reads its index where it is told to."""

    def __init__(self, width: int, index: int = 0, *, reads: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)
        self.index, self.reads = index, reads

    def forward(self, x: Tensor, cache: list[Tensor] | None = None, place: int = 0) -> Tensor:
        out: Tensor = x + self.second(torch.relu(self.first(x)))
        if cache is not None:
            out = out + cache[place]
        return out + self.index if self.reads else out


class Net(nn.Module):
    """Two kinds of blocks, the second one half as long and twice as wide, between other modules."""

    def __init__(self, count: int = 6, *, reads: bool = False) -> None:
        super().__init__()
        self.before, self.between = nn.Conv1d(1, 2, 1), nn.Conv1d(2, 4, 1)
        self.narrow = nn.ModuleList(Block(2, number, reads=reads) for number in range(count))
        self.wide = nn.Sequential(
            *(Block(4, number, reads=reads) for number in range(min(count, 3)))
        )

    def forward(self, x: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        # Other strides than between blocks, so that the first block is called in its own way.
        x = functional.pad(self.before(x), (0, 2))[:, :, :-2]
        for place, block in enumerate(self.narrow):
            x = block(x, cache, place)
        out: Tensor = self.wide(self.between(x)[:, :, ::2].contiguous())
        return out


def batch(size: int = 3) -> Tensor:
    return torch.arange(8.0 * size).view(size, 1, 8) / 8


def test_one_graph_for_each_kind(compiler: Compiler) -> None:
    """All blocks run compiled, each kind on one graph, and one more for the call that differs;
    outputs are eager's, and no dimension of one kind is taken for another's that changed."""
    model = Net()
    with torch.no_grad():
        expected = model(batch())
        found = compile_regions(model, backend=compiler)
        assert torch.equal(model(batch()), expected)
    assert [(kind.kind, kind.count) for kind in found.kinds] == [("Block", 6), ("Block", 3)]
    assert (len(compiler.graphs), compiler.runs) == (3, 9)
    assert all(isinstance(item, Tensor) for inputs in compiler.graphs for item in inputs)


def test_what_was_chosen_is_said() -> None:
    """Kinds with places and sizes, what lies outside, and the share of it."""
    found = compile_regions(Net(2))
    assert [kind.places for kind in found.kinds] == [("narrow.0", "narrow.1"), ("wide.0", "wide.1")]
    assert [kind.differ for kind in found.kinds] == [("index",), ("index",)]
    assert [kind.parameters for kind in found.kinds] == [12, 40]
    assert (found.model, found.parameters, found.outside) == ("Net", 120, 16)
    assert found.alone == ("before", "between")
    assert (cachesvc.compile_regions, cachesvc.Regions) == (compile_regions, type(found))


def test_blocks_that_read_their_index(compiler: Compiler) -> None:
    """Nine blocks have a graph each, more than torch allows one function, and none falls back to
    eager; another batch gives them one more each, and no more after that."""
    model = Net(9, reads=True)
    with torch.no_grad():
        expected = [model(batch(size)) for size in (3, 4, 5)]
        compile_regions(model, backend=compiler)
        outputs = [model(batch(3))]
        assert (len(compiler.graphs), compiler.runs) == (12, 12)
        outputs.append(model(batch(4)))
        assert (len(compiler.graphs), compiler.runs) == (24, 24)
        outputs.append(model(batch(5)))
        assert (len(compiler.graphs), compiler.runs) == (24, 36)
    assert all(map(torch.equal, outputs, expected))


def test_blocks_that_are_told_their_place(compiler: Compiler) -> None:
    """The same where the model gives each block its place: nothing of the blocks shows it."""
    model, cache = Net(9), [torch.full((1,), float(number)) for number in range(9)]
    with torch.no_grad():
        expected = model(batch(), cache)
        compile_regions(model, backend=compiler)
        assert torch.equal(model(batch(), cache), expected)
        assert torch.equal(model(batch(), cache), expected)
    assert compiler.runs == 24


@pytest.mark.parametrize("reads", [False, True])
def test_a_torch_that_cannot_isolate(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """Blocks that differ are compiled each, equal ones together; all run compiled either way."""
    monkeypatch.setattr(regions, "_isolates", lambda: False)
    model = Net(9, reads=reads)
    for block in (*model.narrow, *model.wide):
        block.index = block.index if reads else 0
    with torch.no_grad():
        expected = model(batch())
        compile_regions(model, backend=compiler)
        assert torch.equal(model(batch()), expected)
    assert (len(compiler.graphs), compiler.runs) == (12 if reads else 3, 12)


def test_more_blocks_than_a_function_may_have_graphs(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit for a function as a whole is never met: more blocks have more functions."""
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
    monkeypatch.setattr(torch._dynamo.config, "accumulated_recompile_limit", 8)
    model = Net(5, reads=True)
    compile_regions(model, backend=compiler)
    with torch.no_grad():
        for size in (3, 4, 5):
            model(batch(size))
    assert compiler.runs == 3 * 8


def test_training(compiler: Compiler) -> None:
    """Gradients are eager's, though the first block's input needs none and the others' does."""
    model = Net(4)
    model.before.requires_grad_(requires_grad=False)
    model(batch()).sum().backward()
    expected = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compile_regions(model, backend=compiler)
    model(batch()).sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(parameter.grad, gradient)  # type: ignore[arg-type]
    assert (len(compiler.graphs), compiler.runs) == (3, 7)


def test_dynamic_shapes(compiler: Compiler) -> None:
    """With dynamic=True the first graph of a kind serves other batches too."""
    model = Net(3)
    with torch.no_grad():
        expected = model(batch(7))
        compile_regions(model, backend=compiler, dynamic=True)
        model(batch(3))
        count = len(compiler.graphs)
        assert torch.equal(model(batch(7)), expected)
    assert len(compiler.graphs) == count


def test_in_place(compiler: Compiler) -> None:
    """Names, weights loaded afterwards, hooks and copies are as without; a copy is not compiled."""
    model, other, hooked = Net(2), Net(2), []
    names, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    compile_regions(model, backend=compiler)
    assert list(model.state_dict()) == names
    assert [type(module) for module in model.modules()] == kinds
    model.load_state_dict(other.state_dict())
    model.narrow[1].register_forward_hook(lambda *_: hooked.append(1))
    assert torch.equal(model(batch()), other(batch()))
    assert hooked == [1]
    copied = copy.deepcopy(model)
    assert not is_compiled(copied)
    assert torch.equal(copied(batch()), other(batch()))


def test_again(compiler: Compiler) -> None:
    """With the same options nothing is done; with others what was compiled is compiled anew."""
    model = Net(2)
    first = compile_regions(model, backend=compiler)
    model(batch())
    count = len(compiler.graphs)
    assert compile_regions(model, backend=compiler) == first
    model(batch())
    assert len(compiler.graphs) == count
    compile_regions(model, backend=compiler, dynamic=True)
    model(batch())
    assert len(compiler.graphs) > count


def test_one_class_after_another(compiler: Compiler) -> None:
    """What an earlier call has compiled stays so, with its graphs and its options, and is named."""

    class Wide(Block):
        pass

    model = Net(2)
    model.wide = nn.Sequential(Wide(4, 0), Wide(4, 1))
    first = compile_regions(model, backend=compiler, classes=[Block], dynamic=True)
    model(batch())
    count = len(compiler.graphs)
    found = compile_regions(model, backend=compiler, classes=[Wide], options=GRAPHS)
    assert all(map(is_compiled_itself, (*model.narrow, *model.wide)))
    assert [kind.kind for kind in found.kinds] == ["Wide", "Block"]
    assert found.kinds[1:] == first.kinds
    assert (first.alone, found.alone) == (
        ("before", "between", "wide"),
        ("before", "between"),
    )
    runs = compiler.runs
    model(batch())
    assert compiler.runs == runs + 4
    assert len(compiler.graphs) == count + 1
    again = compile_regions(model, backend=compiler, classes=[Block], dynamic=True)
    assert [kind.kind for kind in again.kinds] == ["Block", "Wide"]
    assert again.notes == found.notes != ()


def test_what_lies_in_a_block_or_holds_one(compiler: Compiler) -> None:
    """It is compiled with the block or not at all: the last call says which."""
    model = Net(2)
    compile_regions(model, backend=compiler)
    found = compile_regions(model, backend=compiler, classes=["Sequential"])
    assert [kind.kind for kind in found.kinds] == ["Sequential", "Block"]
    assert all(map(is_compiled_itself, (model.wide, *model.narrow)))
    assert not any(map(is_compiled_itself, model.wide))
    compile_regions(model, backend=compiler)
    assert not is_compiled_itself(model.wide)
    assert all(map(is_compiled_itself, (*model.narrow, *model.wide)))


def test_options_are_left_as_they_were() -> None:
    """torch takes entries out of the options that it is given; every block gets all of them."""
    asked: list[int] = []

    def keep_all(guards: Any) -> list[bool]:
        asked.append(len(guards))
        return [True] * len(guards)

    model, options = Net(2, reads=True), {"guard_filter_fn": keep_all}
    compile_regions(model, backend="eager", options=options)
    model(batch())
    assert options == {"guard_filter_fn": keep_all}
    assert len(asked) >= 4


def test_nothing_repeats() -> None:
    """Then nothing is compiled, and the text says what to do."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    found = compile_regions(model)
    assert found.kinds == ()
    assert not is_compiled(model)
    assert "torch.compile(model)" in str(found)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, False),
        ({"mode": "max-autotune-no-cudagraphs"}, False),
        ({"mode": "reduce-overhead"}, True),
        ({"mode": "max-autotune"}, True),
        ({"options": {"triton.cudagraphs": True}}, True),
        ({"options": {"triton.cudagraphs": False}}, False),
    ],
)
def test_cuda_graphs_need_steps(options: dict[str, Any], steps: bool) -> None:
    """Where blocks become CUDA graphs, the text says what the program has to call."""
    found = compile_regions(Net(2), **options)
    assert ("cudagraph_mark_step_begin" in str(found)) == steps


def compiled_part() -> nn.Module:
    model = Net(2)
    model.wide.compile()
    return model


@pytest.mark.parametrize(
    ("build", "options", "error"),
    [
        (lambda: torch.compile(Net(2)), {}, "the model is compiled already: give the model as it"),
        (compiled_part, {}, "wide is compiled already"),
        (lambda: [Net(2)], {}, "a list has no blocks: give a torch.nn.Module, each model by"),
        (lambda: batch, {}, "a function has no blocks"),
        (lambda: nn.Linear(2, 2), {}, r"Linear holds no other module.*call torch.compile\(model\)"),
        (lambda: Net(2), {"classes": ["Layer"]}, "Net holds no Layer: choose from Block, Conv1d"),
        (lambda: Net(2), {"modus": "default"}, "torch.compile does not take these options.*modus"),
        (lambda: Net(2), {"mode": "fastest"}, "torch.compile does not take these options.*fastest"),
        (lambda: Net(2), {"options": {"no": 1}}, "torch.compile does not take these options.*no"),
    ],
)
def test_errors(build: Any, options: dict[str, Any], error: str) -> None:
    """Each says what is wrong and what to do; then nothing was compiled."""
    model = build()
    before = is_compiled(model)
    with pytest.raises(UsageError, match=error):
        compile_regions(model, **options)
    assert is_compiled(model) == before


@pytest.mark.parametrize("called", [False, True], ids=["new", "called before"])
def test_running_eagerly(compiler: Compiler, called: bool) -> None:
    """Regions run as they were written, for a while or from now on."""
    model = Net(2)
    compile_regions(model, backend=compiler)
    expected = model(batch()) if called else None
    runs = compiler.runs
    with eagerly():
        model(batch())
    assert run_eagerly(model)
    out = model(batch())
    assert expected is None or torch.equal(out, expected)
    assert compiler.runs == runs
    assert not is_compiled(model)


def components(how: str) -> dict[str, str]:
    torch.manual_seed(0)
    model: Any = Net(4)
    if how == "whole":
        model = torch.compile(model)
    elif how == "each":
        for block in (*model.narrow, *model.wide):
            block.compile()
    elif how != "none":
        options: dict[str, Any] = {
            "dynamic": {"dynamic": True},
            "sequences": {"classes": ["Sequential"]},
        }
        compile_regions(model, **options.get(how, {}))
    return dict(model_components(model))


def test_the_digest_tells_regions() -> None:
    """It is that of the model, with what is compiled: equal for equal regions, another one for the
    model as a whole, for blocks compiled by hand, for other regions and for other options."""
    ways = ("none", "whole", "each", "regions", "dynamic", "sequences")
    found = {how: components(how) for how in ways}
    assert found["none"] == found["whole"]
    assert components("regions") == found["regions"]
    texts = [sorted(components.items()) for how, components in found.items() if how != "none"]
    assert all(one != other for number, one in enumerate(texts) for other in texts[:number])
    assert set(found["regions"]) - set(found["none"]) == {"compile narrow.*", "compile wide.*"}
    assert '"region":"Block"' in found["regions"]["compile wide.*"]


def test_the_digest_of_a_model_that_was_called(compiler: Compiler) -> None:
    """It is the one from before the first call."""
    model = Net(3, reads=True)
    compile_regions(model, backend=compiler)
    before = model_components(model)
    model(batch())
    assert model_components(model) == before
