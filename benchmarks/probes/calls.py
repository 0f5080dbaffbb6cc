"""Other calls of the same model: arguments, modes of threads, switches of the process."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from benchmarks.probes.changes import Wrapped
from benchmarks.probes.trial import Inapplicable, Probe, Side


def _tensors(side: Side) -> list[tuple[Any, Any, torch.Tensor]]:
    """Containers, keys and values of all tensors among the arguments."""
    found: list[tuple[Any, Any, torch.Tensor]] = []
    found += [(side.args, n, v) for n, v in enumerate(side.args) if isinstance(v, torch.Tensor)]
    found += [(side.kwargs, n, v) for n, v in side.kwargs.items() if isinstance(v, torch.Tensor)]
    return found


def _first(side: Side) -> tuple[Any, Any, torch.Tensor]:
    return _tensors(side)[0]


def _floating(side: Side) -> tuple[Any, Any, torch.Tensor]:
    for found in _tensors(side):
        if found[2].is_floating_point():
            return found
    raise Inapplicable


def _on_first(change: Callable[[torch.Tensor], Any]) -> Callable[[Side], None]:
    def changed(side: Side) -> None:
        holder, name, value = _first(side)
        holder[name] = change(value)

    return changed


def _on_floating(change: Callable[[torch.Tensor], Any]) -> Callable[[Side], None]:
    def changed(side: Side) -> None:
        holder, name, value = _floating(side)
        holder[name] = change(value)

    return changed


def _positional(side: Side) -> None:
    if not side.kwargs:
        raise Inapplicable
    first = next(iter(side.kwargs))
    side.args = [side.kwargs.pop(first)]


def _named(side: Side) -> None:
    import inspect

    if not side.args:
        raise Inapplicable
    names = list(inspect.signature(type(side.model).forward).parameters)[1:]
    side.kwargs = {**dict(zip(names, side.args, strict=False)), **side.kwargs}
    side.args = []


def _swapped_names(side: Side) -> None:
    side.kwargs = dict(reversed(side.kwargs.items()))
    if len(side.kwargs) < 2:
        raise Inapplicable


def _given(name: str, value: Callable[[Side], Any]) -> Callable[[Side], None]:
    def changed(side: Side) -> None:
        import inspect

        parameters = inspect.signature(type(side.model).forward).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        hf = hasattr(side.model, "config")
        if name not in parameters and not (takes_all and hf):
            raise Inapplicable
        side.kwargs[name] = value(side)

    return changed


def _mask(side: Side) -> Any:
    mask = torch.ones(_first(side)[2].shape[:2], dtype=torch.long)
    mask[:, -3:] = 0
    return mask


def _positions(side: Side) -> Any:
    return torch.arange(_first(side)[2].shape[1]).flip(0)[None]


def _twice(side: Side) -> None:
    found = _tensors(side)
    if len(found) < 2 or found[0][2].shape != found[1][2].shape:
        raise Inapplicable
    found[1][0][found[1][1]] = found[0][2]


def _overlapping(side: Side) -> None:
    found = _tensors(side)
    if len(found) < 2 or found[0][2].shape != found[1][2].shape:
        raise Inapplicable
    shape = found[0][2].shape
    memory = torch.arange(shape.numel() + 4, dtype=torch.float32)
    for number, (holder, name, _) in enumerate(found[:2]):
        holder[name] = memory[4 * number : 4 * number + shape.numel()].view(shape)


def _own(kind: str) -> Callable[[Side], None]:
    """An argument that is a parameter or a buffer of the model, or lies in its memory."""

    def changed(side: Side) -> None:
        holder, name, value = _floating(side)
        if kind == "buffer":
            buffers = [b for b in side.model.buffers() if b.is_floating_point() and b.dim() == 1]
            if not buffers or value.shape[-1] != buffers[0].shape[0]:
                raise Inapplicable
            holder[name] = buffers[0].expand(value.shape)
            return
        for parameter in side.model.parameters():
            if parameter.dim() == 2 and parameter.shape[1] == value.shape[-1] and value.dim() == 2:
                count = value.shape[0]
                rows = parameter if kind == "parameter" else parameter.detach()[:count]
                holder[name] = rows
                return
        raise Inapplicable

    return changed


class Values(dict):  # type: ignore[type-arg]
    """A dictionary that doubles what it is asked for."""

    def __getitem__(self, name: Any) -> Any:
        return super().__getitem__(name) * 2


def _thread(side: Side) -> None:
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        found: list[Any] = []

        def work() -> None:
            with torch.no_grad():
                found.append(model(*args, **kwargs))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0]

    side.call = call


def _thread_with_gradients(side: Side) -> None:
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(model(*args, **kwargs)))
        thread.start()
        thread.join()
        return found[0]

    side.call = call


def _vmapped(side: Side) -> None:
    if len(_tensors(side)) != 1 or "past_key_values" in side.kwargs:
        raise Inapplicable
    holder, name, value = _first(side)

    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        def one(x: torch.Tensor) -> Any:
            output = model(x) if args else model(**{name: x})
            first = output if isinstance(output, torch.Tensor) else None
            return first if first is not None else next(iter(dict(output).values()))

        return torch.func.vmap(one, randomness="same")(torch.stack([value, value]))

    del holder
    side.call = call


def _forward_mode(side: Side) -> None:
    holder, name, value = _floating(side)

    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        forward_ad = torch.autograd.forward_ad
        with forward_ad.dual_level():
            holder[name] = forward_ad.make_dual(value, torch.ones_like(value))
            given = [holder[name], *args[1:]] if holder is side.args else args
            named = dict(kwargs, **({name: holder[name]} if holder is side.kwargs else {}))
            output = model(*given, **named)
            first = output if isinstance(output, torch.Tensor) else next(iter(_values(output)))
            return tuple(forward_ad.unpack_dual(first))

    side.call = call


def _values(output: Any) -> Any:
    return output.values() if isinstance(output, dict) else output


def _state_called(side: Side) -> None:
    """Other weights for one call, as torch.func does it."""

    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        weights = {n: p.detach() * 1.5 for n, p in model.named_parameters()}
        return torch.func.functional_call(model, weights, tuple(args), kwargs)

    side.call = call


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        return output * 2 if func is torch.nn.functional.linear else output


class DoublingBelow(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        return output * 2 if "mm" in str(func) else output


def _fake_mode() -> AbstractContextManager[Any]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def _mode(*modes: Callable[[], AbstractContextManager[Any]]) -> Callable[[Side], None]:
    def changed(side: Side) -> None:
        side.modes = [*side.modes, *modes]

    return changed


def _instead(*modes: Callable[[], AbstractContextManager[Any]]) -> Callable[[Side], None]:
    def changed(side: Side) -> None:
        side.modes = list(modes)

    return changed


@contextmanager
def _set(change: Callable[[Any], None], value: Any, back: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(back)


def _switch(change: Callable[[Any], None], value: Any, back: Any) -> Callable[[Side], None]:
    return _mode(lambda: _set(change, value, back))


def _output_written(side: Side) -> None:
    """What a call gave is written to, and the call is made again."""

    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        first = model(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        for value in _values(first) if not isinstance(first, torch.Tensor) else [first]:
            if isinstance(value, torch.Tensor):
                value.add_(100.0)
        return model(*args, **kwargs)

    side.call = call


def _with_field(value: torch.Tensor) -> torch.Tensor:
    value.note = "a field"  # type: ignore[attr-defined]
    return value


def _unaligned(value: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(value.numel() + 1, dtype=value.dtype)
    view = memory[1:].view(value.shape)
    return view.copy_(value)


def _inferred(value: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return value.clone()


CALLS: dict[str, Callable[[Side], None]] = {
    "another batch": _on_first(lambda t: torch.cat([t, t])),
    "a batch of one": _on_first(lambda t: t[:1]),
    "another length": _on_first(lambda t: t[:, :-1]),
    "an empty batch": _on_first(lambda t: t[:0]),
    "another dtype": _on_first(lambda t: t.double() if t.is_floating_point() else t.int()),
    "other strides": _on_first(lambda t: t.transpose(0, 1).contiguous().transpose(0, 1)),
    "memory that is not aligned": _on_first(_unaligned),
    "an expanded argument": _on_first(lambda t: t[:1].expand(t.shape)),
    "an argument that wants gradients": _on_floating(lambda t: t.requires_grad_()),
    "an argument on meta": _on_first(lambda t: t.to("meta")),
    "an argument of a subclass": _on_floating(lambda t: torch.Tensor._make_subclass(Wrapped, t)),
    "a parameter as argument": _on_floating(lambda t: torch.nn.Parameter(t, False)),
    "an argument with a field": _on_first(_with_field),
    "a sparse argument": _on_floating(lambda t: t.to_sparse()),
    "a conjugate argument": _on_floating(torch._neg_view),
    "an inference tensor": _on_first(_inferred),
    "positional instead of keyword": _positional,
    "keyword instead of positional": _named,
    "keywords in another order": _swapped_names,
    "a mask given": _given("attention_mask", _mask),
    "a mask of None given": _given("attention_mask", lambda side: None),
    "a float mask given": _given("attention_mask", lambda side: _mask(side).float()),
    "a mask for the odd model": _given("mask", lambda side: torch.zeros(4, 16)),
    "a scale given": _given("scale", lambda side: 3.0),
    "the default scale given": _given("scale", lambda side: 1.0),
    "an int for a float": _given("scale", lambda side: 1),
    "a dictionary given": _given("extra", lambda side: {"amount": 2.0}),
    "a dictionary of a subclass": _given("extra", lambda side: Values(amount=2.0)),
    "a tensor in a dictionary": _given("extra", lambda side: {"amount": torch.ones(16)}),
    "positions given": _given("position_ids", _positions),
    "hidden states wanted": _given("output_hidden_states", lambda side: True),
    "attentions wanted": _given("output_attentions", lambda side: True),
    "a tuple wanted": _given("return_dict", lambda side: False),
    "a cache not wanted": _given("use_cache", lambda side: False),
    "a cache wanted": _given("use_cache", lambda side: True),
    "few logits wanted": _given("logits_to_keep", lambda side: 1),
    "labels given": _given("labels", lambda side: _first(side)[2]),
    "an unknown keyword": lambda side: side.kwargs.update(unknown=1),
    "too many arguments": lambda side: side.args.extend([None] * 40),
    "the same tensor twice": _twice,
    "tensors in one memory": _overlapping,
    "a parameter of the model as argument": _own("parameter"),
    "a view of a parameter as argument": _own("view"),
    "a buffer of the model as argument": _own("buffer"),
    "in a thread with gradients": _thread_with_gradients,
    "vmap": _vmapped,
    "forward-mode gradients": _forward_mode,
    "torch.func.functional_call": _state_called,
    "a function mode": _mode(Doubling),
    "a dispatch mode": _mode(DoublingBelow),
    "fake tensors": _mode(_fake_mode),
    "gradients": _instead(torch.enable_grad),
    "inference mode": _instead(torch.inference_mode),
    "autocast": _mode(lambda: torch.autocast("cpu", torch.bfloat16)),
    "default device": _mode(lambda: torch.device("meta")),
    "default device cpu": _mode(lambda: torch.device("cpu")),
    "default dtype": _switch(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic algorithms": _switch(torch.use_deterministic_algorithms, True, False),
    "matmul precision": _switch(torch.set_float32_matmul_precision, "medium", "highest"),
    "without mkldnn": _mode(lambda: torch.backends.mkldnn.flags(enabled=False)),
    "attention kernels": _mode(
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    ),
}


SERVED: dict[str, Callable[[Side], None]] = {
    "in another thread": _thread,
    "outputs written to": _output_written,
    "threads": _switch(torch.set_num_threads, 2, 1),
    "an inner no_grad": _mode(torch.no_grad),
}


PROBES = (
    *(Probe(name, change) for name, change in CALLS.items()),
    *(Probe(name, change, served=True) for name, change in SERVED.items()),
)
