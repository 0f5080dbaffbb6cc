"""Changes to any model: its modules, tensors, hooks, classes."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.probes.trial import Inapplicable, Probe, Side

Change = Callable[[Side], None]


def _module(side: Side, *kinds: type[nn.Module]) -> Any:
    """The first module of a kind below the model; any that holds weights if none is named."""
    for module in list(side.model.modules())[1:]:
        if isinstance(module, kinds or (nn.Linear, nn.Conv2d)) or (
            not kinds and type(module).__name__ == "Conv1D"
        ):
            return module
    raise Inapplicable


def _holder(side: Side, wanted: nn.Module) -> tuple[nn.Module, str]:
    for module in side.model.modules():
        for name, child in module._modules.items():
            if child is wanted:
                return module, name
    raise Inapplicable


def _list(side: Side) -> nn.ModuleList:
    for module in side.model.modules():
        if isinstance(module, nn.ModuleList) and len(module) > 1:
            return module
    raise Inapplicable


def _weights(side: Side) -> list[nn.Parameter]:
    return [p for p in side.model.parameters() if p.is_floating_point()]


def _doubled(module: Any, args: Any, output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output * 2
    if isinstance(output, tuple) and output and isinstance(output[0], torch.Tensor):
        return (output[0] * 2, *output[1:])
    return output


class Doubling(nn.Module):
    """Stands in the place of another module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _doubled(None, None, self.inner(*args, **kwargs))


def _subclass(kind: Any) -> type:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _doubled(None, None, kind.forward(self, *args, **kwargs))

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _train(side: Side) -> None:
    side.model.train()


def _train_one(side: Side) -> None:
    found = [m for m in side.model.modules() if isinstance(m, nn.Dropout | nn.BatchNorm2d)]
    if not found:
        raise Inapplicable
    found[0].train()


def _instance_forward(side: Side) -> None:
    module = _module(side)
    inner = module.forward
    module.forward = lambda *args, **kwargs: inner(*args, **kwargs) * 2


def _top_forward(side: Side) -> None:
    inner = type(side.model).forward
    model = side.model

    def forward(*args: Any, **kwargs: Any) -> Any:
        return {"new": inner(model, *args, **kwargs)}

    model.forward = forward


def _forward_in_dict(side: Side) -> None:
    module = _module(side)
    inner = module.forward
    module.__dict__["forward"] = lambda *args: inner(*args) * 2


def _other_class(side: Side) -> None:
    module = _module(side)
    module.__class__ = _subclass(type(module))


def _top_class(side: Side) -> None:
    kind = type(side.model)
    inner = kind.forward

    class Other(kind):  # type: ignore[valid-type, misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return [inner(self, *args, **kwargs)]

    side.model.__class__ = Other


def _fields_replaced(side: Side) -> None:
    module = _module(side, nn.LayerNorm, nn.BatchNorm2d, nn.Linear)
    fields = dict(module.__dict__)
    if "eps" in fields:
        fields["eps"] = 0.5
    else:
        fields["forward"] = lambda x: x * 0.5
    module.__dict__ = fields


def _hook(side: Side) -> None:
    _module(side).register_forward_hook(_doubled)


def _hook_of_each(side: Side) -> None:
    for module in list(side.model.modules())[1:]:
        module.register_forward_hook(_doubled)


def _pre_hook(side: Side) -> None:
    def pre(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(a * 2 if isinstance(a, torch.Tensor) else a for a in args)

    _module(side).register_forward_pre_hook(pre)


def _top_hook(side: Side) -> None:
    side.model.register_forward_hook(lambda module, args, output: [output])


def _top_pre_hook(side: Side) -> None:
    def pre(module: Any, args: Any, kwargs: Any) -> Any:
        return args, {k: v + 1 if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}

    side.model.register_forward_pre_hook(pre, with_kwargs=True)


def _hook_in_dict(side: Side) -> None:
    _module(side)._forward_hooks[12345] = _doubled


def _swapped(side: Side) -> None:
    module = _module(side)
    holder, name = _holder(side, module)
    holder._modules[name] = Doubling(module)


def _activation_swapped(side: Side) -> None:
    for module in side.model.modules():
        for name, child in module._modules.items():
            if type(child).__name__ in ("Tanh", "GELU", "SiLUActivation", "GELUActivation"):
                setattr(module, name, nn.ReLU())
                return
    raise Inapplicable


def _added(side: Side) -> None:
    layers = _list(side)
    layers.append(copy.deepcopy(layers[-1]))


def _removed(side: Side) -> None:
    layers = _list(side)
    del layers[-1]


def _reordered(side: Side) -> None:
    layers = _list(side)
    first = layers._modules.pop("0")
    layers._modules["0"] = first


def _exchanged(side: Side) -> None:
    layers = _list(side)
    layers._modules["0"], layers._modules["1"] = layers._modules["1"], layers._modules["0"]


def _same_twice(side: Side) -> None:
    layers = _list(side)
    layers[1] = layers[0]


def _untied(side: Side) -> None:
    holders: dict[int, tuple[nn.Module, str]] = {}
    for module in side.model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in holders:
                changed = nn.Parameter(parameter.detach() * 2, parameter.requires_grad)
                setattr(module, name, changed)
                return
            holders[id(parameter)] = (module, name)
    raise Inapplicable


def _pair(side: Side) -> tuple[tuple[nn.Module, str], tuple[nn.Module, str]]:
    found: dict[Any, tuple[nn.Module, str]] = {}
    for module in side.model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None or parameter.dim() < 2:
                continue
            other = found.setdefault(parameter.shape, (module, name))
            if other[0] is not module and getattr(*other) is not parameter:
                return other, (module, name)
    raise Inapplicable


def _row_untied(side: Side) -> None:
    rows = getattr(side.model, "rows", None)
    if rows is None:
        raise Inapplicable
    rows[0] = nn.Parameter(rows[0].detach() * 3)


def _written(name: str, value: Any) -> Change:
    """What the model's own code writes, as it might have written it."""

    def change(side: Side) -> None:
        if not hasattr(side.model, "widen"):
            raise Inapplicable
        if isinstance(value, list):
            getattr(side.model, name).extend(value)
        else:
            setattr(side.model, name, value)

    return change


def _tied(side: Side) -> None:
    one, (module, name) = _pair(side)
    setattr(module, name, getattr(*one))


def _shared_storage(side: Side) -> None:
    one, other = _pair(side)
    getattr(*other).data = getattr(*one).data


def _exchanged_weights(side: Side) -> None:
    (one, first), (two, second) = _pair(side)
    weights = one._parameters[first], two._parameters[second]
    one._parameters[first], two._parameters[second] = weights[1], weights[0]


def _none(side: Side) -> None:
    module = _module(side, nn.Linear)
    if module.bias is None:
        raise Inapplicable
    module.bias = None


def _added_parameter(side: Side) -> None:
    _module(side).register_parameter("another", nn.Parameter(torch.ones(3)))


def _strided(side: Side) -> None:
    weight = next(p for p in _weights(side) if p.dim() == 2)
    weight.data = weight.data.t().contiguous().t()


def _reshaped(side: Side) -> None:
    module = _module(side, nn.Linear)
    module.weight.data = module.weight.data[:1]


def _wanting(side: Side) -> None:
    side.modes = []
    _weights(side)[0].requires_grad_(True)


def _no_gradients(side: Side) -> None:
    side.model.requires_grad_(False)


def _gradients_on(side: Side) -> None:
    side.model.requires_grad_(False)
    side.modes = [torch.enable_grad]


def _meta(side: Side) -> None:
    side.model.to("meta")


class Wrapped(torch.Tensor):
    """A subclass of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            plain = func(*args, **(kwargs or {}))
        return plain * 2 if func is nn.functional.linear else plain


def _subclass_parameter(side: Side) -> None:
    module = _module(side)
    module._parameters["weight"] = torch.Tensor._make_subclass(Wrapped, module.weight.data)


def _class_of_parameter(side: Side) -> None:
    _module(side).weight.__class__ = type("Parameter", (Wrapped, nn.Parameter), {})


def _property(side: Side) -> None:
    """A property of the class hides an attribute of the instance."""
    module = _module(side, nn.LayerNorm, nn.BatchNorm2d)
    made = type(type(module).__name__, (type(module),), {"eps": property(lambda self: 0.5)})
    module.__class__ = made


def _getattr(side: Side) -> None:
    module = _module(side)

    class Other(type(module)):  # type: ignore[misc]
        def __getattr__(self, name: str) -> Any:
            value = super().__getattr__(name)
            return value * 2 if name == "weight" else value

    module.__class__ = Other


def _call_replaced(side: Side) -> None:
    module = _module(side)

    class Other(type(module)):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return _doubled(None, None, super().__call__(*args, **kwargs))

    module.__class__ = Other


def _half(side: Side) -> None:
    side.model.to(torch.bfloat16)


def _one_double(side: Side) -> None:
    _module(side).to(torch.float64)


def _buffer(side: Side) -> None:
    for module in side.model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point() and buffer.dim() == 1:
                module._buffers[name] = buffer[:1] * 2
                return
    raise Inapplicable


def _parametrized(side: Side) -> None:
    from torch.nn.utils import parametrize

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    parametrize.register_parametrization(_module(side), "weight", Twice())


def _weight_norm(side: Side) -> None:
    module = _module(side)
    nn.utils.weight_norm(module)
    module.weight_g.data *= 2


def _frozen_part(side: Side) -> None:
    for parameter in side.model.parameters():
        parameter.requires_grad_(False)
        break


CHANGES: dict[str, Change] = {
    "training mode": _train,
    "training mode of one module": _train_one,
    "forward of a module replaced": _instance_forward,
    "forward of a module replaced in its dictionary": _forward_in_dict,
    "forward of the model replaced": _top_forward,
    "class of a module changed": _other_class,
    "class of the model changed": _top_class,
    "dictionary of a module replaced": _fields_replaced,
    "a hook": _hook,
    "a hook of each module": _hook_of_each,
    "a hook before a module": _pre_hook,
    "a hook of the model": _top_hook,
    "a hook before the model": _top_pre_hook,
    "a hook written to the dictionary": _hook_in_dict,
    "a module swapped": _swapped,
    "an activation swapped": _activation_swapped,
    "a layer added": _added,
    "a layer removed": _removed,
    "layers in another order": _reordered,
    "layers exchanged": _exchanged,
    "the same layer twice": _same_twice,
    "weights untied": _untied,
    "a weight in a list untied": _row_untied,
    "a number that the model writes": _written("width", 8),
    "a list that the model writes": _written("seen", [1.0, 2.0]),
    "a tensor that the model writes": _written("scale", torch.full((16,), 3.0)),
    "a wider tensor that the model writes": _written("scale", torch.full((24,), 3.0)),
    "a narrower tensor that the model writes": _written("scale", torch.full((12,), 3.0)),
    "weights tied": _tied,
    "weights exchanged": _exchanged_weights,
    "weights in one storage": _shared_storage,
    "a bias taken away": _none,
    "a parameter added": _added_parameter,
    "strides of a weight": _strided,
    "shape of a weight": _reshaped,
    "gradients wanted": _wanting,
    "no gradients wanted": _no_gradients,
    "gradients on, none wanted": _gradients_on,
    "one parameter frozen": _frozen_part,
    "on the meta device": _meta,
    "in bfloat16": _half,
    "one module in float64": _one_double,
    "a parameter of a subclass": _subclass_parameter,
    "class of a parameter changed": _class_of_parameter,
    "a property hides an attribute": _property,
    "__getattr__ on a class": _getattr,
    "__call__ on a class": _call_replaced,
    "a buffer of another shape": _buffer,
    "a weight parametrized": _parametrized,
    "weight norm": _weight_norm,
}


def _other_weights(side: Side) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    state: dict[str, torch.Tensor] = {}
    same: dict[int, torch.Tensor] = {}
    for name, value in side.model.state_dict(keep_vars=True).items():
        if id(value) not in same:
            same[id(value)] = (
                value.detach() + 0.1 * torch.rand_like(value)
                if value.is_floating_point()
                else value.detach().clone()
            )
        state[name] = same[id(value)]
    return state


def _loaded(side: Side) -> None:
    side.model.load_state_dict(_other_weights(side))


def _assigned(side: Side) -> None:
    if hasattr(side.model, "rows"):  # the list would keep the old one
        raise Inapplicable
    state = _other_weights(side)
    tied = {
        id(p): nn.Parameter(state[n], p.requires_grad)
        for n, p in side.model.state_dict(keep_vars=True).items()
    }
    parameters = dict(side.model.named_parameters(remove_duplicate=False))
    given = {
        n: tied[id(p)] if n in parameters else state[n]
        for n, p in side.model.state_dict(keep_vars=True).items()
    }
    side.model.load_state_dict(given, assign=True)


def _in_place(side: Side) -> None:
    with torch.no_grad():
        for parameter in _weights(side):
            parameter.add_(0.01)


def _data(side: Side) -> None:
    for parameter in _weights(side):
        parameter.data = parameter.data * 1.01


def _step(side: Side) -> None:
    optimizer = torch.optim.SGD(side.model.parameters(), lr=0.1)
    for parameter in side.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def _new_parameter(side: Side) -> None:
    if hasattr(side.model, "rows"):
        raise Inapplicable
    named = [id(p) for _, p in side.model.named_parameters(remove_duplicate=False)]
    for module in side.model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and named.count(id(parameter)) == 1:
                changed = nn.Parameter(parameter.detach() * 1.5, parameter.requires_grad)
                setattr(module, name, changed)
                return
    raise Inapplicable


def _there_and_back(side: Side) -> None:
    side.model.train()
    side.model.eval()
    side.model.to(torch.float64)
    side.model.to(torch.float32)


def _hook_and_back(side: Side) -> None:
    _module(side).register_forward_hook(_doubled).remove()


def _copied(side: Side) -> None:
    copy.deepcopy(side.model)
    torch.save(side.model.state_dict(), io.BytesIO())
    pickle.dumps(side.model.state_dict())


def _other_inputs(side: Side) -> None:
    def renewed(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value + 0.5 if value.min() < 0 else value
        return value.flip(-1) if isinstance(value, torch.Tensor) else value

    side.args = [renewed(value) for value in side.args]
    side.kwargs = {name: renewed(value) for name, value in side.kwargs.items()}


def _unrelated(side: Side) -> None:
    import fractions

    side.model.register_state_dict_pre_hook(lambda *args: None)
    fractions.__dict__["unrelated"] = 1
    torch.manual_seed(77)


SERVED: dict[str, Change] = {
    "other inputs": _other_inputs,
    "other weights loaded": _loaded,
    "other weights assigned": _assigned,
    "weights changed in place": _in_place,
    "data of weights replaced": _data,
    "a step of an optimizer": _step,
    "another parameter of the same kind": _new_parameter,
    "modes and dtypes there and back": _there_and_back,
    "a hook there and back": _hook_and_back,
    "copied and saved": _copied,
    "unrelated changes": _unrelated,
}

PROBES = (
    *(Probe(name, change) for name, change in CHANGES.items()),
    *(Probe(name, change, served=True) for name, change in SERVED.items()),
)
