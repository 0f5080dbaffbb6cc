"""Dynamo looks for local_map where a program has switched that on."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from cachesvc.runtime import local_map


def dynamo() -> Any:
    class LocalMapWrappedHigherOrderVariable:
        _enabled = False

        @classmethod
        def should_wrap_in_hop(cls, value: object) -> bool:
            return value == "local_map"

    module = ModuleType("torch._dynamo.variables.higher_order_ops")
    vars(module)["LocalMapWrappedHigherOrderVariable"] = LocalMapWrappedHigherOrderVariable
    return module


def test_nothing_is_compared_while_it_is_off() -> None:
    """The answer is no, whatever comes."""
    module = dynamo()
    local_map._watch(module)
    assert module.LocalMapWrappedHigherOrderVariable.should_wrap_in_hop("local_map") is False


def test_torch_answers_while_it_is_on() -> None:
    """As it would by itself."""
    module = dynamo()
    local_map._watch(module)
    holder = module.LocalMapWrappedHigherOrderVariable
    holder._enabled = True
    assert [holder.should_wrap_in_hop(value) for value in ("local_map", "x")] == [True, False]


@pytest.mark.parametrize("missing", ["_enabled", "should_wrap_in_hop"])
def test_another_dynamo(missing: str) -> None:
    """Without the switch, or without the question, it is left as it is."""
    module = dynamo()
    delattr(module.LocalMapWrappedHigherOrderVariable, missing)
    before = dict(vars(module.LocalMapWrappedHigherOrderVariable))
    local_map._watch(module)
    assert dict(vars(module.LocalMapWrappedHigherOrderVariable)) == before
    local_map._watch(ModuleType("torch._dynamo.variables.higher_order_ops"))
