"""A loaded function does at a call what AOTAutograd does around a graph."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from cachesvc.runtime.aot.capture import DETACHED, SAME, VIEW
from cachesvc.runtime.aot.files import read
from cachesvc.runtime.aot.function import DoesNotFit, Function, PassedOn


def _ones(**options: Any) -> Tensor:
    return torch.ones(3, **options)


def test_a_call_is_the_graphs(make: Any, small: Any) -> None:
    """Code, names and graph come together; the first call ends the trial."""
    function = Function(make(), small.forward)
    assert function.is_on_trial
    (output,) = function(small, _ones())
    assert torch.equal(output, torch.full((3,), 2.0))
    assert not function.is_on_trial


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(4),
        torch.ones(3, dtype=torch.float64),
        torch.ones(6)[::2],
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(3).to_sparse(),
        5,
    ],
    ids=repr,
)
def test_inputs_of_another_kind_are_refused(make: Any, small: Any, other: Any) -> None:
    """Before anything was computed."""
    stored = make("print(1 / 0)")
    with pytest.raises(DoesNotFit, match="input 0 of the graph is of another kind"):
        Function(stored, small.forward)(small, other)


def test_inputs_are_looked_at_again_on_demand(make: Any, small: Any) -> None:
    """A call that fits ends the looking; whoever knows better begins it again."""
    function = Function(make(), small.forward)
    function(small, _ones())
    assert function.is_checked
    function.look_again()
    assert not function.is_checked
    with pytest.raises(DoesNotFit):
        function(small, torch.ones(4))


def test_a_call_that_has_begun_before_shows_nothing(make: Any, small: Any) -> None:
    """It has not looked up what another has been asked to look up since."""
    function = Function(make(), small.forward)
    before = function.ledger

    class Asking:
        def first_difference(self, *args: Any) -> str:
            function.look_again()
            function.ledger = before
            return ""

    function.ledger = Asking()  # type: ignore[assignment]
    function(small, _ones())
    assert not function.is_checked
    function(small, _ones())
    assert function.is_checked


WRITES = "(args[0].detach().mul_(2), 1 / 0)"


@pytest.mark.parametrize("inference", [False, True])
def test_what_a_failed_graph_has_written_is_taken_back(
    make: Any, small: Any, inference: bool
) -> None:
    """As long as no call has shown that it works; also of tensors of inference mode."""
    with torch.inference_mode(inference):
        x = _ones()
        function = Function(make(WRITES, x, mutated=(0,)), small.forward)
    with torch.no_grad(), pytest.raises(ZeroDivisionError):
        function(small, x)
    assert torch.equal(x, _ones())
    assert function.is_on_trial


def test_a_function_that_has_worked_and_written_tells_its_caller(make: Any, small: Any) -> None:
    """What it has written cannot be taken back any more: nothing is computed twice."""
    stored = make("(args[0].detach().mul_(2), 1 / (3 - args[0][0]))", mutated=(0,))
    function = Function(stored, small.forward)
    function(small, _ones())
    function._graph = lambda inputs: 1 / 0
    with pytest.raises(PassedOn) as told:
        function(small, _ones())
    assert isinstance(told.value.error, ZeroDivisionError)


def test_what_is_only_read_is_not_copied(make: Any, small: Any) -> None:
    """There may be no room for a copy; where there is none for what is written to, the call is
    made otherwise."""

    class Large(Tensor):
        def clone(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            raise torch.OutOfMemoryError("no room")

    inputs = (torch.ones(3), torch.ones(3).as_subclass(Large))
    function = Function(make("(args[0] * 2,)", mutated=(0,)), small.forward)
    assert [copy is None for _, copy in function._written(inputs)] == [False]
    with pytest.raises(DoesNotFit, match="cannot be copied"):
        function._written(inputs[::-1])


def test_memory_that_must_be_aligned(make: Any, small: Any) -> None:
    """A kernel that was compiled for aligned memory is given no other."""
    function = Function(make(aligned=(0,)), small.forward)
    function(small, _ones())
    with pytest.raises(DoesNotFit, match="not aligned"):
        function(small, torch.ones(4)[1:])


def test_writing_to_an_input_is_told_to_autograd(make: Any, small: Any) -> None:
    """As writing in place is; tensors of inference mode have nothing to tell it to."""
    function = Function(make("(args[0].detach().mul_(2) * 1,)", mutated=(0,)), small.forward)
    x = _ones()
    before = x._version
    function(small, x)
    assert x._version > before
    with torch.inference_mode():
        y = _ones()
        stored = make("(args[0].detach().mul_(2) * 1,)", y, mutated=(0,))
        Function(stored, small.forward)(small, y)
    assert torch.equal(x, y)


def test_an_output_that_is_an_input(make: Any, small: Any) -> None:
    """Is that very tensor, whatever the graph gives for it."""
    x = _ones()
    (output,) = Function(make("(None,)", returned=((0, 0, SAME),)), small.forward)(small, x)
    assert output is x


@pytest.mark.parametrize("grad", [True, False])
def test_an_output_that_is_a_view(make: Any, small: Any, grad: bool) -> None:
    """Of the input, and so it shares versions and what is said of gradients."""
    stored = make("(args[0].detach()[1:],)", _ones(requires_grad=grad), returned=((0, 0, VIEW),))
    x = _ones(requires_grad=grad)
    with torch.no_grad():
        (output,) = Function(stored, small.forward)(small, x)
        expected = x[1:]
    assert output._base is x
    assert output.requires_grad == expected.requires_grad
    assert output._version == x._version


def test_a_view_that_is_detached(make: Any, small: Any) -> None:
    """Shares the memory and nothing of the gradients."""
    stored = make(
        "(args[0].detach()[1:],)", _ones(requires_grad=True), returned=((0, 0, DETACHED),)
    )
    x = _ones(requires_grad=True)
    (output,) = Function(stored, small.forward)(small, x)
    assert not output.requires_grad
    assert output.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_gradients_are_off_within(make: Any, small: Any) -> None:
    """And on again after it, also where the graph fails."""
    function = Function(make("(args[0] * 2,)", _ones(requires_grad=True)), small.forward)
    (output,) = function(small, _ones(requires_grad=True))
    assert not output.requires_grad
    assert torch.is_grad_enabled()


def test_autocast_is_compiled_in(make: Any, small: Any) -> None:
    """The graph itself runs without, as it has all casts in it."""
    function = Function(make("(args[0] @ args[0],)", amp=True), small.forward)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (output,) = function(small, _ones())
        assert torch.is_autocast_enabled("cpu")
    assert output.dtype == torch.float32


def test_constants_are_there(make: Any, small: Any) -> None:
    """Though the generated module gives each of them no value."""
    module = compile("c = None\ndef call(args):\n    return (args[0] + c,)", "<inductor>", "exec")
    stored = make(module=module, constants={"c": torch.full((3,), 4.0)})
    (output,) = Function(stored, small.forward)(small, _ones())
    assert torch.equal(output, torch.full((3,), 5.0))


def test_the_directory_is_needed_at_load_alone(make: Any, small: Any) -> None:
    """It may be moved and loaded from there, or deleted afterwards."""
    stored = make(constants={"c": _ones()})
    moved = stored.folder.rename(stored.folder.parent / "moved")
    function = Function(read(moved), small.forward)
    shutil.rmtree(moved)
    (output,) = function(small, _ones())
    assert torch.equal(output, torch.full((3,), 2.0))


def test_threads_call_one_function(make: Any, small: Any) -> None:
    """Each gets its own output."""
    function = Function(make(), small.forward)
    found: dict[int, bool] = {}

    def call(number: int) -> None:
        x = torch.full((3,), float(number))
        with torch.no_grad():
            found[number] = all(torch.equal(function(small, x)[0], x * 2) for _ in range(50))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(8), True)
