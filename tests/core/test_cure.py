"""Cures, found by the words of torch's reasons."""

from __future__ import annotations

import pytest

from cachesvc.core.cure import break_cure, bypass_cure, cudagraph_cure, is_asked_for, is_limit

# The first lines of what torch 2.13 says.
BREAKS = {
    "Data-dependent branching\n  Explanation: Detected data-dependent branching": "torch.where",
    "Dynamo does not know how to trace builtin operator `print`": "is_compiling()",
    "Unsupported: call_function BuiltinVariable(print)": "is_compiling()",
    "Attempted to call function marked as skipped: fingerprint": "custom_op",
    "logging.Logger method not supported for non-export cases": "is_compiling()",
    "Unsupported Tensor.item() call with capture_scalar_outputs=False": "capture_scalar_outputs =",
    "Dynamic shape operator\n  aten.nonzero.default": "capture_dynamic_output_shape_ops = True",
    "Call to `torch._dynamo.graph_break()`": "the code asks for it",
    "Skip calling `torch.compiler.disable()`d function": "the code asks for it",
    "Attempted to call function marked as skipped": "custom_op",
    "Generic context manager\n  `__enter__` is unknown": "outside what is compiled",
}


@pytest.mark.parametrize("reason", BREAKS)
def test_graph_breaks(reason: str) -> None:
    """Each by its own words."""
    assert BREAKS[reason] in break_cure(reason)


def test_a_break_of_no_known_kind() -> None:
    """torch's own hint that names a change; else what always helps."""
    reason = "New\n  Hint: Please report an issue to PyTorch.\n  Hint: Do it in another way.\n"
    assert break_cure(reason) == "Do it in another way."
    assert "custom_op" in break_cure("New\n  Hint: This graph break is fundamental - it is so.")


def test_a_break_that_was_asked_for() -> None:
    """By a call or a decorator in the user's code."""
    assert is_asked_for("Call to `torch._dynamo.graph_break()`")
    assert is_asked_for("Skip calling `torch.compiler.disable()`d function")
    assert not is_asked_for("Data-dependent branching")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Unsupported call_function target autograd_function_apply.", "register_autograd"),
        ("Cannot cache a graph with freezing enabled", "TORCHINDUCTOR_FREEZING"),
        ("Skipping graph with frozen constants", "TORCHINDUCTOR_FREEZING"),
        ("Unsupported post grad custom pass", "CustomGraphPass"),
        ("Failed to pickle cache key", "out of the graph"),
        ("mkldnn tensors unpickleable", "torch's own layout"),
        ("Unsupported call_function target app.square", "custom_op"),
        ("something new", "plain operators of torch"),
    ],
)
def test_bypasses(reason: str, words: str) -> None:
    """Each by its own words, or what always helps."""
    assert words in bypass_cure(reason)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("skipping cudagraphs due to cpu device (arg0_1)", "to the GPU"),
        ("skipping cudagraphs due to mutated inputs (1 instances)", "buffer"),
        ("graph with symbolic shapes inputs", "pad to a few lengths"),
        ("something new", "without mode='reduce-overhead'"),
    ],
)
def test_cuda_graphs(reason: str, words: str) -> None:
    """Each by its own words, or what always helps."""
    assert words in cudagraph_cure(reason)


def test_the_limit() -> None:
    """As new and old versions of torch word it."""
    assert is_limit("Dynamo recompile limit exceeded")
    assert is_limit("cache_size_limit reached")
    assert not is_limit("Data-dependent branching")
