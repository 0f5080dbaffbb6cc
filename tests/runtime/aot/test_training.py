"""A graph with gradients does under autograd what torch's own runtime does around its passes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cachesvc.runtime.aot.function import PassedOn
from cachesvc.runtime.aot.training import TrainingGraph

PLAIN = {
    "outputs": 1,
    "checked": 2,
    "fresh": [],
    "aliases": [],
    "plain": [],
    "detached": [],
    "seen": [],
    "tangents": [[0, [[2, 3], [3, 1]]]],
    "donated": [],
    "deterministic": False,
}


def _product(inputs: list[Tensor]) -> list[Tensor]:
    """x * w, which saves both."""
    x, w = inputs
    return [x * w, x, w]


def _product_backward(arguments: list[Tensor]) -> list[Tensor]:
    x, w, tangent = arguments
    arguments.clear()
    return [tangent * w, tangent * x]


def _graph(
    forward: Callable[[list[Any]], Any] = _product,
    backward: Callable[[list[Any]], Any] = _product_backward,
    aligned: tuple[int, ...] = (),
    amp: bool = False,
    **joint: Any,
) -> TrainingGraph:
    facts = {"aligned": list(aligned), "joint": {**PLAIN, **joint}}
    return TrainingGraph(facts, amp=amp, forward=forward, backward=backward)


def _inputs() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)]


def test_gradients_are_those_of_the_backward_pass() -> None:
    """And they add up over calls, as gradients do."""
    x, w = _inputs()
    graph = _graph()
    for _ in range(2):
        (output,) = graph([x, w])
        output.sum().backward()
    assert torch.equal(output, x * w)
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * w)
    assert w.grad is not None
    assert torch.equal(w.grad, 2 * x)


def test_a_second_backward_pass() -> None:
    """The code may overwrite what it was given for good; after `retain_graph` it gets copies, so
    that the second pass gives the same."""

    def forward(inputs: list[Tensor]) -> list[Tensor]:
        return [inputs[0] * inputs[1], inputs[0].clone(), inputs[1]]

    def overwrites(arguments: list[Tensor]) -> list[Tensor]:
        x, w, tangent = arguments
        memory = x.data  # as a kernel writes: no version tells of it
        return [tangent * w, memory.mul_(tangent).clone()]

    x, w = _inputs()
    for donated, right in (([0], True), ([], False)):
        w.grad = None
        (output,) = _graph(forward, overwrites, donated=donated)([x, w])
        output.backward(torch.full((2, 3), 2.0), retain_graph=True)
        output.backward(torch.full((2, 3), 2.0))
        assert w.grad is not None
        assert torch.equal(w.grad, 4 * x) is right


def test_without_retaining_nothing_is_copied() -> None:
    """What was saved is freed as the code goes on, not held by anybody until its end."""
    freed: list[bool] = []
    saved: list[weakref.ref[Tensor]] = []

    def forward(inputs: list[Tensor]) -> list[Tensor]:
        made = inputs[0].clone()
        saved.append(weakref.ref(made))
        return [inputs[0] * inputs[1], made, inputs[1]]

    def backward(arguments: list[Tensor]) -> list[Tensor]:
        x, w, tangent = arguments
        arguments.clear()
        result = [tangent * w, tangent * x]
        del x
        freed.append(saved[0]() is None)
        return result

    (output,) = _graph(forward, backward, donated=[0])(_inputs())
    output.sum().backward()
    assert freed == [True]


def test_gradients_of_gradients() -> None:
    """Gradients that might be differentiated are right; doing so is an error, as with torch."""
    x, w = _inputs()
    (output,) = _graph()([x, w])
    first, second = torch.autograd.grad(output.sum(), [x, w], create_graph=True)
    assert torch.equal(first, w)
    assert torch.equal(second, x)
    with pytest.raises(RuntimeError, match="no gradients of gradients"):
        first.sum().backward()


def test_what_was_saved_is_written_to() -> None:
    """Autograd finds it by its version, before wrong gradients are made of it."""
    x, w = _inputs()
    (output,) = _graph()([x, w])
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_what_is_saved_without_a_check() -> None:
    """As a function of the user's that keeps a tensor by itself: nobody asks for its version."""
    x, w = _inputs()
    (output,) = _graph(checked=0)([x, w])
    with torch.no_grad():
        x.zero_()
    output.sum().backward()
    assert w.grad is not None
    assert torch.equal(w.grad, torch.zeros(2, 3))


def test_autograd_is_told_of_writing() -> None:
    """Before the forward pass, so that what it saves has the version after."""
    x, w = _inputs()
    statistics = torch.zeros(3)

    def forward(inputs: list[Tensor]) -> list[Tensor]:
        inputs[2].data.add_(1)
        return [*_product(inputs[:2]), inputs[2]]

    def backward(arguments: list[Tensor]) -> list[Tensor | None]:
        return [*_product_backward([arguments[n] for n in (0, 1, 3)]), None]

    version = statistics._version
    (output,) = _graph(forward, backward, checked=3, seen=[2])([x, w, statistics])
    assert statistics._version == version + 1
    output.sum().backward()
    assert x.grad is not None


def _outputs(inputs: list[Tensor]) -> list[Tensor]:
    """A product, a number without gradient, the first input, an index."""
    x, w = inputs
    return [x * w, x.detach().sum(), x, torch.tensor(3), x, w]


def test_outputs_without_gradients() -> None:
    """They want none, nor does an output that is an input get one here; it is handed on for the
    caller to make."""
    x, w = _inputs()
    graph = _graph(_outputs, outputs=4, aliases=[2], plain=[1, 2, 3])
    product, number, same, index = graph([x, w])
    assert product.requires_grad
    assert not number.requires_grad
    assert same is x
    assert not index.requires_grad
    product.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, w)


def test_no_gradient_is_made_up_for_an_output_without() -> None:
    """Zeros in place of one would take the memory of the output: more than there is, for this."""
    x, w = _inputs()
    large = torch.zeros(1).expand(1 << 50)
    graph = _graph(lambda inputs: [inputs[0] * inputs[1], large, *inputs], outputs=2, plain=[1])
    output, _ = graph([x, w])
    output.sum().backward()
    assert x.grad is not None


def test_an_output_with_a_storage_of_its_own() -> None:
    """A view that the code gives is none to autograd, so that it can be written to."""
    x, w = _inputs()
    graph = _graph(lambda inputs: [(inputs[0] * inputs[1]).view(3, 2).view(2, 3), *inputs])
    (output,) = graph([x, w])
    fresh = _graph(graph.forward, fresh=[0])
    (output,) = fresh([x, w])
    assert not output._is_view()
    output.mul_(2).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * w)


def test_an_input_that_never_has_a_gradient() -> None:
    """It is detached before the forward pass."""
    wanted: list[bool] = []

    def forward(inputs: list[Tensor]) -> list[Tensor]:
        wanted.extend(item.requires_grad for item in inputs)
        return _product(inputs)

    x, w = _inputs()
    graph = _graph(forward, lambda a: [None, _product_backward(a)[1]], detached=[0])
    (output,) = graph([x, w])
    output.sum().backward()
    assert wanted == [False, True]
    assert x.grad is None
    assert w.grad is not None


def test_a_view_that_is_saved() -> None:
    """It is saved without what it is a view of, which would be held with it."""
    views: list[bool] = []

    def backward(arguments: list[Tensor]) -> list[Tensor]:
        views.extend(item._is_view() for item in arguments[:2])
        return _product_backward(arguments)

    whole, w = torch.randn(3, 2, requires_grad=True), _inputs()[1]
    (output,) = _graph(backward=backward)([whole.t(), w])
    output.sum().backward()
    assert views == [False, False]
    assert whole.grad is not None
    assert torch.equal(whole.grad, w.t())


@pytest.mark.parametrize(
    ("layout", "stride"),
    [([[2, 3], [3, 1]], (3, 1)), ([[2, 3], [1, 2]], (1, 2)), ("contiguous_format", (3, 1))],
)
def test_gradients_come_in_the_layout_that_was_compiled(
    layout: Any, stride: tuple[int, ...]
) -> None:
    """Whatever layout they were made in."""
    got: list[tuple[int, ...]] = []

    def backward(arguments: list[Tensor]) -> list[Tensor]:
        got.append(arguments[2].stride())
        return _product_backward(arguments)

    x, w = _inputs()
    graph = _graph(backward=backward, tangents=[[0, layout]])
    values = torch.arange(6.0).view(2, 3)
    for gradient in (values, values.t().contiguous().t(), torch.ones(()).expand(2, 3)):
        x.grad = None
        (output,) = graph([x, w])
        output.backward(gradient)
        assert x.grad is not None
        assert torch.equal(x.grad, gradient * w)
    assert set(got) == {stride}


def test_a_gradient_of_another_class() -> None:
    """It is refused: the code would take its memory for a plain tensor's."""

    class Other(Tensor):
        pass

    x, w = _inputs()
    (output,) = _graph()([x, w])
    with pytest.raises(RuntimeError, match="Other; a compiled backward pass takes plain tensors"):
        output.backward(torch.ones(2, 3).as_subclass(Other))  # type: ignore[no-untyped-call]


def test_memory_that_no_kernel_takes() -> None:
    """An argument of the backward pass that is not aligned is copied, with its strides."""
    got: list[Tensor] = []

    def backward(arguments: list[Tensor]) -> list[Tensor]:
        got.append(arguments[2])
        return _product_backward(arguments)

    x, w = _inputs()
    gradient = torch.arange(7.0)[1:].view(3, 2).t()
    graph = _graph(backward=backward, aligned=(2,), tangents=[[0, [[2, 3], [1, 2]]]])
    (output,) = graph([x, w])
    output.backward(gradient)
    assert got[0].data_ptr() % 16 == 0
    assert got[0].stride() == (1, 2)
    assert torch.equal(got[0], gradient)


def test_deterministic_algorithms() -> None:
    """Switched on after the forward pass, torch refuses the backward pass that was compiled
    without; a function of its own does, too."""
    x, w = _inputs()
    (output,) = _graph()([x, w])
    (other,) = _graph(deterministic=None)([x, w])
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="use_deterministic_algorithms"):
            output.sum().backward()
        other.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_autocast_is_compiled_in() -> None:
    """Neither pass runs under it, wherever they are called; without, both do as they are told."""
    seen: list[bool] = []

    def forward(inputs: list[Tensor]) -> list[Tensor]:
        seen.append(torch.is_autocast_enabled("cpu"))
        return _product(inputs)

    def backward(arguments: list[Tensor]) -> list[Tensor]:
        seen.append(torch.is_autocast_enabled("cpu"))
        return _product_backward(arguments)

    for amp in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            (output,) = _graph(forward, backward, amp=amp)(_inputs())
            output.sum().backward()
    assert seen == [False, False, True, True]


def test_gradients_are_on_where_the_graph_has_them() -> None:
    """A graph that was compiled with gradients has them, whatever is set around it."""
    with torch.no_grad():
        (output,) = _graph()(_inputs())
    assert output.requires_grad


def test_hooks_on_what_is_saved() -> None:
    """Those of torch.autograd.graph see each tensor once on each way."""
    packed: list[Tensor] = []
    unpacked: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    def unpack(tensor: Tensor) -> Tensor:
        unpacked.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        (output,) = _graph()(_inputs())
    output.sum().backward()
    assert len(packed) == len(unpacked) == 2


def test_errors_of_hooks_are_not_the_graphs() -> None:
    """What hooks raise after the forward pass is told apart from what the pass itself raises."""

    class Stopped(Exception):
        pass

    def stop(_: Tensor) -> Tensor:
        raise Stopped

    with (
        torch.autograd.graph.saved_tensors_hooks(stop, lambda tensor: tensor),
        pytest.raises(PassedOn) as passed,
    ):
        _graph()(_inputs())
    assert isinstance(passed.value.error, Stopped)

    def fails(_: list[Tensor]) -> list[Tensor]:
        raise Stopped

    with pytest.raises(Stopped):
        _graph(fails)(_inputs())


TRAINED = "import sys\nfrom pathlib import Path\nfrom trained_models import *\n"


@pytest.fixture(scope="session")
def counting(fresh: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small model with a running mean, captured and trained in one process."""
    script = """
folder = Path(given["folder"])
recorder = capture(build(Counting), counting_step, folder)
hits = tally.hits
model, written = armed(build(Counting), folder), build(Counting)
ours = steps(model, counting_step)
result = {
    "reasons": recorder.reasons,
    "hits": tally.hits - hits,
    "apart": apart(ours, steps(written, counting_step)),
    "mean": float(model.mean.abs().max()),
}
output = model(batch())
output.sum().backward(retain_graph=True)
once = model.inner.weight.grad.clone()
output.sum().backward()
result["twice"] = apart([2 * once], [model.inner.weight.grad])
model.zero_grad()
missed = tally.misses
checkpoint(model, batch(), use_reentrant=False).sum().backward()
result["computed again"] = apart([once], [model.inner.weight.grad]), tally.misses - missed
output = model(batch())
with torch.no_grad():
    model.frozen.add_(1)
try:
    output.sum().backward()
except RuntimeError as error:
    result["written to"] = str(error)
"""
    folder = tmp_path_factory.mktemp("counting")
    return fresh.run(script, given={"folder": folder}, prelude=TRAINED)


def test_training_is_as_it_was_written(counting: Any) -> None:
    """Outputs, gradients, updated weights and what the forward pass writes to: as eager has them,
    up to rounding, over several steps, each of which was a hit."""
    assert counting["reasons"] == []
    assert counting["hits"] == 3
    assert counting["apart"] < 1e-5
    assert counting["mean"] > 0.01


def test_a_real_graph_after_its_first_backward_pass(counting: Any) -> None:
    """After `retain_graph` the second pass gives the same gradients; weights that were changed in
    between are found."""
    assert counting["twice"] < 1e-6
    assert "modified by an inplace operation" in counting["written to"]


def test_a_checkpoint_around_it(counting: Any) -> None:
    """Its hooks stop the second forward pass by an error once they have all that was saved; that
    is no failure of the function."""
    difference, missed = counting["computed again"]
    assert difference < 1e-6
    assert missed == 0


CASES = {
    "norm": ("Normed", (), "plain_step"),
    "dropout": ("Normed", (0.3,), "plain_step"),
    "input": ("Normed", (0.3,), "input_step"),
    "autocast": ("Normed", (0.3,), "autocast_step"),
    "hooks": ("Normed", (0.3,), "hooked_step"),
    "views": ("Views", (), "views_step"),
    "mixed": ("Mixed", (), "mixed_step"),
}


@pytest.fixture(scope="session")
def run(fresh: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Any], Any]:
    """Runs a script in a process that finds what was compiled before, which saves minutes."""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("compiled"))}
    return lambda script, folder: fresh.run(
        script, given={"folder": folder}, env=env, prelude=TRAINED
    )


@pytest.mark.slow
@pytest.mark.xdist_group("training")
@pytest.mark.parametrize("case", CASES)
def test_training_is_what_torch_compiles(run: Any, tmp_path: Any, case: str) -> None:
    """Bit by bit, with the same random numbers: outputs, gradients, weights, buffers, and the
    layout of each."""
    kind, given, step = CASES[case]
    script = f"result = compared(Path(given['folder']), {kind}, {given}, {step})"
    found = run(script, tmp_path)
    assert found["reasons"] == []
    assert found["misses"] == 0
    assert found["hits"] == 3 * (2 if case == "hooks" else 1)
    assert found["compiled"] == 0
    if case in ("norm", "views", "mixed"):
        assert found["written"] < 1e-4


@pytest.mark.slow
@pytest.mark.xdist_group("training")
@pytest.mark.parametrize(("step", "hits"), [("evaluated_step", 3), ("freezing_step", 1)])
def test_training_goes_on_after_other_calls(run: Any, tmp_path: Any, step: str, hits: int) -> None:
    """What the function was not compiled for goes the compiled way: a call in evaluation mode,
    after which the next step is a hit again, and all steps once a layer has no gradient."""
    script = f"result = compared(Path(given['folder']), Normed, (0.3,), {step}, plain_step)"
    found = run(script, tmp_path)
    assert (found["hits"], found["misses"]) == (hits, 3 if hits == 3 else 2)
    assert found["compiled"] == 0


@pytest.mark.slow
@pytest.mark.xdist_group("training")
def test_what_is_not_captured(run: Any, tmp_path: Any) -> None:
    """Writing to an input that has a gradient is told of, and nothing is kept."""
    script = """
def step(model):
    x = batch().requires_grad_() * 1
    model(x).sum().backward()
recorder = capture(build(Written), step, Path(given["folder"]))
result = recorder.reasons, recorder.units
"""
    reasons, units = run(script, tmp_path)
    assert units == []
    assert "inputs written to afterwards" in reasons[0]
