"""A graph with gradients: its forward and backward pass, run under torch's autograd.

What torch's AOTAutograd does around the two passes is done here again, for the graphs that are
captured: what is saved, with which checks, the layout of gradients, a second backward pass after
`retain_graph`. As there, gradients of gradients are refused with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from cachesvc.runtime.aot.function import PassedOn

Graph = Callable[[list[Any]], Any]

_ALIGNMENT = 16


class _Alias:
    """An output that is a view of an input: autograd is not told of it here."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class TrainingGraph:
    """Both passes of a graph; called like one without gradients.

    `facts` are those of the backward pass; with `amp` both have autocast compiled in.
    """

    def __init__(
        self, facts: Mapping[str, Any], *, amp: bool, forward: Graph, backward: Graph
    ) -> None:
        joint = facts["joint"]
        self.forward = forward
        self.backward = backward
        self.amp = amp
        self.outputs = int(joint["outputs"])
        self.checked = int(joint["checked"])
        self.fresh = tuple(joint["fresh"])
        self.aliases = tuple(joint["aliases"])
        self.plain = tuple(joint["plain"])
        self.tangents = [(int(number), layout) for number, layout in joint["tangents"]]
        self.donated = tuple(joint["donated"])
        self.aligned = tuple(facts["aligned"])
        self.forbids_deterministic = joint["deterministic"] is False
        self._detached = tuple(joint["detached"])
        self._seen = tuple(joint["seen"])

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """The outputs; views of inputs among them have still to be made.

        Raises PassedOn for what the hooks raise that are told of each tensor that is saved.
        """
        torch.autograd.graph.increment_version([inputs[number] for number in self._seen])
        given = list(inputs)
        for number in self._detached:
            given[number] = given[number].detach()
        done: list[bool] = []
        try:
            with torch.enable_grad(), self.without_autocast():
                outputs = _Passes.apply(self, done, *given)  # type: ignore[no-untyped-call]
        except Exception as error:
            if done:  # autograd saves, and calls the hooks, after the forward pass
                raise PassedOn(error) from error
            raise
        return [item.tensor if type(item) is _Alias else item for item in outputs]

    def without_autocast(self) -> AbstractContextManager[Any]:
        """Within, autocast is off if it is compiled in."""
        return torch._C._DisableAutocast() if self.amp else nullcontext()


class _Passes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: TrainingGraph, done: list[bool], *inputs: Any) -> tuple[Any, ...]:
        outputs = list(graph.forward(list(inputs)))
        saved = [t.detach() if t._is_view() else t for t in outputs[graph.outputs :]]
        ctx.save_for_backward(*saved[: graph.checked])
        ctx.unchecked = saved[graph.checked :]
        ctx.graph = graph
        returned = outputs[: graph.outputs]
        for number in graph.fresh:
            returned[number] = torch.ops.aten._unsafe_view(returned[number], returned[number].shape)
        for number in graph.aliases:
            returned[number] = _Alias(returned[number])
        plain = [returned[number] for number in graph.plain]
        ctx.mark_non_differentiable(*[t for t in plain if isinstance(t, torch.Tensor)])
        ctx._materialize_non_diff_grads = False
        done.append(True)
        return tuple(returned)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        graph: TrainingGraph = ctx.graph
        _check_mode(graph)
        tangents = [_laid_out(gradients[number], layout) for number, layout in graph.tangents]
        arguments = [*ctx.saved_tensors, *ctx.unchecked, *tangents]

        def run() -> tuple[Any, ...]:
            ctx.maybe_clear_saved_tensors()
            return _run_backward(graph, arguments)

        if not torch.is_grad_enabled():
            return (None, None, *run())
        given = [torch.empty(0, requires_grad=True), *arguments]
        return (None, None, *_Once.apply(run, *given))  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """A backward pass that is itself part of a graph, but has no gradient."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], tuple[Any, ...]], *_: Any) -> tuple[Any, ...]:
        return run()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "a function compiled ahead of time has no gradients of gradients; nor has torch.compile"
        )


def _check_mode(graph: TrainingGraph) -> None:
    """What torch refuses at a backward pass, too."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise RuntimeError("a compiled backward pass cannot run within vmap, grad or vjp")
    if graph.forbids_deterministic and torch.are_deterministic_algorithms_enabled():
        raise RuntimeError(
            "the backward pass was compiled while torch.use_deterministic_algorithms was off, and"
            " it is on now: switch it on before the forward pass"
        )


def _laid_out(gradient: Any, layout: Any) -> Any:
    """A gradient in the layout that the code expects."""
    if not isinstance(gradient, torch.Tensor):
        return gradient
    if type(gradient) is not torch.Tensor:
        raise RuntimeError(
            f"the gradient of an output is a {type(gradient).__qualname__}; a compiled backward"
            " pass takes plain tensors"
        )
    if isinstance(layout, str):
        return gradient.contiguous(memory_format=getattr(torch, layout))
    size, stride = map(tuple, layout)
    if gradient.shape == size and gradient.stride() == stride:
        return gradient
    restrided = torch.empty_strided(size, stride, dtype=gradient.dtype, device=gradient.device)
    return restrided.copy_(gradient.detach())


def _run_backward(graph: TrainingGraph, given: list[Any]) -> tuple[Any, ...]:
    """The gradients of the inputs. The arguments are taken out of their list, so that the code
    frees each as soon as it is done with it."""
    if torch._C._autograd._get_current_graph_task_keep_graph():
        for number in graph.donated:  # it will be needed again
            given[number] = _copied(given[number])
    for number in graph.aligned:
        if isinstance(given[number], torch.Tensor) and given[number].data_ptr() % _ALIGNMENT:
            given[number] = _copied(given[number])
    with torch.no_grad(), graph.without_autocast():
        return tuple(graph.backward(given))


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, whatever they are."""
    if not tensor.numel():
        return tensor.clone()
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((extent,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)
