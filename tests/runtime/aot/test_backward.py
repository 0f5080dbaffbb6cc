"""What is kept of a backward pass, and what makes that impossible."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cachesvc.runtime.aot import backward
from cachesvc.runtime.aot.backward import backward_of
from cachesvc.runtime.aot.capture import NotCaptured

CODE = "def call(args):\n    return tuple(args)\n"


class PlainTensorMeta(SimpleNamespace):
    """As torch has it, of a tensor that is of no subclass."""


def _layout(size: tuple[Any, ...], stride: tuple[int, ...], format: Any = None) -> Any:
    return PlainTensorMeta(
        memory_format=SimpleNamespace(size=size, stride=stride, memory_format=format)
    )


def _output(kind: str, requires_grad: bool = True) -> Any:
    return SimpleNamespace(
        output_type=SimpleNamespace(name=kind), raw_type=torch.Tensor, requires_grad=requires_grad
    )


def _entry(**changes: Any) -> Any:
    """What AOTAutograd has of a graph with one output, that saves three tensors."""
    facts: dict[str, Any] = {
        "num_opaque_objects_saved_for_bw": 0,
        "num_backward_tokens": 0,
        "num_graphsafe_rng_states": 0,
        "dynamic_outputs": False,
        "indices_of_inputs_that_requires_grad_with_mutations_in_bw": [],
        "output_info": [_output("non_alias")],
        "subclass_tangent_meta": [_layout((2, 3), (3, 1))],
        "num_tensors_saved_with_no_vc_check": 1,
        "mutated_graph_handled_indices_seen_by_autograd": [2],
        "bw_donated_idxs": [1],
        "deterministic": None,
    }
    passes: dict[str, Any] = {"num_symints_saved_for_bw_": 0, "backward_state_indices": []}
    result: dict[str, Any] = {
        "source_code": CODE,
        "constants": None,
        "inputs_to_check": [3],
        "mutated_input_idxs": [],
    }
    for part in (facts, passes, result):
        part.update({name: changes.pop(name) for name in list(changes) if name in part})
    return SimpleNamespace(
        compiled_fw=SimpleNamespace(result=SimpleNamespace(source_code="forward")),
        compiled_bw=SimpleNamespace(**passes, result=SimpleNamespace(**result)),
        runtime_metadata=SimpleNamespace(**facts),
        num_fw_outs_saved_for_bw=changes.pop("saved", 3),
        indices_of_inps_to_detach=[0],
        **changes,
    )


@pytest.fixture(autouse=True)
def _loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no module that Inductor has loaded."""
    monkeypatch.setattr(backward, "kernels_of", lambda *_: ({}, {}))


def test_how_the_passes_hang_together() -> None:
    """Numbers of outputs and of what is saved, layouts, what is detached, written to, donated."""
    found = backward_of(_entry(), [], ())
    assert found is not None
    assert found.aligned == (3,)
    assert found.joint.to_json() == {
        "outputs": 1,
        "checked": 2,
        "fresh": [],
        "aliases": [],
        "plain": [],
        "detached": [0],
        "seen": [2],
        "tangents": [[0, [[2, 3], [3, 1]]]],
        "donated": [1],
        "deterministic": None,
    }


def test_outputs_of_all_kinds() -> None:
    """Only what is new, and has a gradient, has one that the backward pass takes."""
    outputs = [
        _output("is_input"),
        _output("unsafe_view_alias"),
        _output("non_alias", requires_grad=False),
        _output("alias_of_input"),
        _output("custom_function_view"),
    ]
    without = _output("non_alias")  # a view that was made without gradients, as later torch tells
    without.requires_grad_for_backward = False
    layouts = [_layout((2,), (1,)), _layout((2, 2), (1, 2), torch.channels_last)]
    entry = _entry(output_info=[*outputs, without], subclass_tangent_meta=layouts)
    found = backward_of(entry, [], ())
    assert found is not None
    joint = found.joint
    assert (joint.fresh, joint.aliases, joint.plain) == ((1,), (0, 3), (2,))
    assert [t.to_json() for t in joint.tangents] == [[1, [[2], [1]]], [4, "channels_last"]]


def test_a_graph_without_gradients() -> None:
    """There is no backward pass of it."""
    assert backward_of(SimpleNamespace(compiled_bw=None), [], ()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_symints_saved_for_bw_": 1}, "sizes that are saved"),
        ({"backward_state_indices": [0]}, "a state of the compiled autograd"),
        ({"num_opaque_objects_saved_for_bw": 1}, "objects that are saved"),
        ({"num_backward_tokens": 1}, "tokens"),
        ({"num_graphsafe_rng_states": 1}, "states of random numbers"),
        ({"dynamic_outputs": True}, "outputs of changing shapes"),
        ({"mutated_input_idxs": [0]}, "inputs written to backwards"),
        (
            {"indices_of_inputs_that_requires_grad_with_mutations_in_bw": [0]},
            "inputs written to backwards",
        ),
        ({"output_info": [_output("alias_of_intermediate")]}, "is alias of intermediate"),
        ({"subclass_tangent_meta": []}, "takes 0 gradients, not 1"),
        ({"subclass_tangent_meta": [SimpleNamespace()]}, "of a tensor subclass"),
        ({"subclass_tangent_meta": [_layout(("s0",), (1,))]}, "no fixed shape"),
        ({"saved": None}, "how much is saved"),
    ],
)
def test_what_cannot_be_kept(changes: dict[str, Any], reason: str) -> None:
    """Each is told."""
    with pytest.raises(NotCaptured, match=reason):
        backward_of(_entry(**changes), [], ())


def test_triton_kernels_are_tuned_on_what_the_forward_pass_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs once; the backward pass gets what it saved, and ones in the layout of each gradient.

    What the forward pass writes to stays as it was.
    """
    given: list[Any] = []

    def forward(inputs: list[Any]) -> tuple[Any, ...]:
        inputs[2].add_(1)
        return (inputs[0] * inputs[1], *inputs)

    def kernels(result: Any, kinds: Any, arguments: Sequence[Any], written: Any) -> Any:
        given.extend(arguments)
        return {}, {}

    triton = "kernel = async_compile.triton('kernel', '')\ndef call(args):\n    kernel.run(args)\n"
    monkeypatch.setattr(backward, "kernels_of", kernels)
    monkeypatch.setattr(backward, "generated", lambda text: SimpleNamespace(call=forward))
    inputs = [torch.ones(2, 3), torch.ones(2, 3), torch.zeros(3)]
    layout = _layout((2, 3), (1, 2))
    backward_of(_entry(source_code=triton, subclass_tangent_meta=[layout]), inputs, (2,))
    assert given[0] is inputs[0]
    assert torch.equal(given[2], torch.ones(3))
    assert torch.equal(inputs[2], torch.zeros(3))
    assert torch.equal(given[3], torch.ones(2, 3))
    assert given[3].stride() == (1, 2)
    assert len(given) == 4
