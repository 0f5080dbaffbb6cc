"""Changes to whatever the odd model takes its constants from."""

from __future__ import annotations

import functools
import math
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import ExitStack
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.probes import odd, odd_parts
from benchmarks.probes.odd_parts import Descriptor, Mode, Other
from benchmarks.probes.trial import Probe, Side


def _attribute(*path: Any, value: Any) -> Callable[[Side], None]:
    """Sets what a path of names and keys leads to."""

    def change(side: Side) -> None:
        found = side.model
        for part in path[:-1]:
            found = getattr(found, part) if _is_name(found, part) else found[part]
        if _is_name(found, path[-1]):
            setattr(found, path[-1], value)
        else:
            found[path[-1]] = value

    return change


def _is_name(holder: Any, part: Any) -> bool:
    return isinstance(part, str) and not isinstance(holder, dict | list)


def _patch(holder: Any, name: str, value: Any) -> Callable[[ExitStack, Side], None]:
    def change(stack: ExitStack, side: Side) -> None:
        stack.enter_context(patch.object(holder, name, value, create=name not in vars(holder)))

    return change


def _item(holder: Any, key: Any, value: Any) -> Callable[[ExitStack, Side], None]:
    def change(stack: ExitStack, side: Side) -> None:
        before = holder[key]
        holder[key] = value
        stack.callback(holder.__setitem__, key, before)

    return change


def _edited(x: torch.Tensor, by: float = 0.0) -> torch.Tensor:
    return x * 3 + by


def _code(function: FunctionType, other: FunctionType) -> Callable[[ExitStack, Side], None]:
    def change(stack: ExitStack, side: Side) -> None:
        stack.callback(setattr, function, "__code__", function.__code__)
        function.__code__ = other.__code__

    return change


def _defaults(stack: ExitStack, side: Side) -> None:
    stack.callback(setattr, odd_parts.activation, "__defaults__", (0.1,))
    odd_parts.activation.__defaults__ = (0.9,)


def _named_default(stack: ExitStack, side: Side) -> None:
    named: Any = odd_parts.activation.__kwdefaults__
    stack.callback(named.__setitem__, "limit", named["limit"])
    named["limit"] = 0.5


def _partial_function(side: Side) -> None:
    side.model.partial.__setstate__((_edited, (), {"by": 0.25}, {}))


def _partial_keyword(side: Side) -> None:
    side.model.partial.keywords["by"] = 5.0


def _private(side: Side) -> None:
    side.model.private._Private__hidden = 9.0


def _into_list(side: Side) -> None:
    side.model.levels.append(3.0)


def _into_set(side: Side) -> None:
    side.model.nested["set"].add("more")


def _deep_list(side: Side) -> None:
    side.model.nested["list"][1]["deep"][1][0] = 30.0


def _box(side: Side) -> None:
    cells = dict(
        zip(side.model.closed.__code__.co_freevars, side.model.closed.__closure__, strict=True)
    )
    cells["box"].cell_contents[0] = 7.5


def _cell(side: Side) -> None:
    side.model.closed.change(2.5)


def _cell_written(side: Side) -> None:
    cells = dict(
        zip(side.model.closed.__code__.co_freevars, side.model.closed.__closure__, strict=True)
    )
    cells["amount"].cell_contents = 3.5


def _class_of_held(side: Side) -> None:
    side.model.held.__class__ = Other


def _module_order(side: Side) -> None:
    named = side.model.named._modules
    named["a"] = named.pop("a")


def _tensor_in_list(side: Side) -> None:
    side.model.plain_tensor[0] = torch.full((1,), 2.0)


def _order(stack: ExitStack, side: Side) -> None:
    table = odd_parts.ORDER
    stack.callback(table.update, dict(table))
    table["second"] = 8.0


def _variable(stack: ExitStack, side: Side) -> None:
    stack.enter_context(patch.dict(os.environ, {"PROBED_ODD_MODEL": "0"}))


def _set_global(stack: ExitStack, side: Side) -> None:
    odd_parts.FLAGS.discard("doubled")
    stack.callback(odd_parts.FLAGS.add, "doubled")


def _longer_deque(stack: ExitStack, side: Side) -> None:
    odd_parts.SIZES.append(1.0)
    stack.callback(odd_parts.SIZES.pop)


def _bases(stack: ExitStack, side: Side) -> None:
    stack.callback(setattr, odd_parts.Held, "__bases__", odd_parts.Held.__bases__)
    odd_parts.Held.__bases__ = (Other,)


def _cached_other(width: int) -> float:
    return 50.0


LOCAL: dict[str, Callable[[Side], None]] = {
    "a field of a dataclass": _attribute("settings", "scale", value=5.0),
    "a dictionary in a dataclass": _attribute("settings", "extras", "shift", value=5.0),
    "an enum in a dataclass": _attribute("settings", "mode", value=Mode.HIGH),
    "an attribute that was not there": _attribute("held", "extra", value=1),
    "a key that was not there": _attribute("nested", "extra", value=1),
    "a slot": _attribute("slotted", "factor", value=5.0),
    "a private slot": _private,
    "class of an object": _class_of_held,
    "a field hides a class constant": _attribute("held", "offset", value=9.0),
    "a list made longer": _into_list,
    "an item of a list": _attribute("levels", 0, value=9.0),
    "a set made larger": _into_set,
    "a nested list": _deep_list,
    "a deep value": _attribute("deep", *"abcdef", "g", 0, value=1.0),
    "keyword of a partial": _partial_keyword,
    "function of a partial": _partial_function,
    "another partial": _attribute("partial", value=functools.partial(odd_parts.shifted, by=4.0)),
    "a list in a closure": _box,
    "a closure's value, by its function": _cell,
    "a closure's value, written": _cell_written,
    "another closure": _attribute("closed", value=odd_parts.closed(4.0, [0.0])),
    "another activation": _attribute("act", value=torch.tanh),
    "a function under a path's name": _attribute("activation_path", value=torch.sigmoid),
    "a flag under a path's name": _attribute("fast_path", value=False),
    "a number under a path's name": _attribute("blocks", 0, "drop_path", value=0.75),
    "a loop's count": _attribute("steps", value=3),
    "order of a dictionary of modules": _module_order,
    "a plain tensor of another shape": _tensor_in_list,
}
EVERYWHERE: dict[str, Callable[[ExitStack, Side], None]] = {
    "a global": _patch(odd, "SCALE", 3.0),
    "a global of another module": _patch(odd_parts, "BIAS", 3.0),
    "a global that is imported in a function": _patch(odd_parts, "LATE", 4.0),
    "a variable of the environment": _variable,
    "a global that was imported": _patch(odd, "LOCAL", 9.0),
    "a global that was imported, at its home": _patch(odd_parts, "LOCAL", 9.0),
    "a nested global": _item(odd_parts.TABLE["inner"]["right"], 0, 9.0),
    "an ordered dictionary": _order,
    "a set in a global": _set_global,
    "a deque in a global": _longer_deque,
    "another deque in a global": _patch(odd_parts, "SIZES", deque([1.0])),
    "a namespace": _patch(odd_parts.NAMESPACE, "power", 9.0),
    "a registry's entry": _item(odd_parts.REGISTRY, "plain", lambda x, limit: x * 0.5),
    "a class constant": _patch(odd.Block, "class_constant", 9.0),
    "a class constant of an object": _patch(odd_parts.Base, "offset", 9.0),
    "a descriptor's value": _patch(vars(odd.Block)["described"], "value", 9.0),
    "another descriptor": _patch(odd.Block, "described", Descriptor(5.0)),
    "a property replaced": _patch(odd.Block, "computed", property(lambda self: 9.0)),
    "a property added": _patch(odd.Block, "drop_path", property(lambda self: 0.5)),
    "bases of an object's class": _bases,
    "code of a function": _code(odd_parts.shifted, _edited),  # type: ignore[arg-type]
    "default of a function": _defaults,
    "keyword default of a function": _named_default,
    "an attribute of a function": _patch(odd_parts.with_attribute, "gain", 9.0),
    "a cached function": _patch(odd_parts, "cached", _cached_other),
    "math.sqrt replaced": _patch(math, "sqrt", lambda x: 9.0),
    "an enum's member": _patch(odd_parts, "Mode", type("Mode", (), {"HIGH": Mode.LOW})),
}
SERVED: dict[str, Callable[[ExitStack, Side], None]] = {
    "a global that nobody reads": lambda stack, side: setattr(odd, "unread", OrderedDict()),
}
PROBES = (
    *(Probe(name, change) for name, change in LOCAL.items()),
    *(Probe(name, None, change) for name, change in EVERYWHERE.items()),
    *(Probe(name, None, change, served=True) for name, change in SERVED.items()),
)
