"""Where a model's call can take another way, in whatever form it was compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import cachesvc
from cachesvc.runtime.aot.boundary import boundaries, has_hooks


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


def compiled_itself() -> nn.Module:
    made = model()
    made.compile(backend="eager")
    return made


def compiled_part() -> nn.Module:
    made = model()
    made[1].compile(backend="eager")
    return made


FORMS: dict[str, tuple[Any, list[str]]] = {
    "plain": (model, [""]),
    "compiled itself": (compiled_itself, [""]),
    "torch.compile": (lambda: torch.compile(model(), backend="eager"), [""]),
    "a part": (compiled_part, ["1"]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_call_goes_the_way_that_is_put_in(name: str) -> None:
    """At its places; and as before when it is taken out again."""
    build, paths = FORMS[name]
    made = build()
    before = made(torch.ones(1, 2))
    places = boundaries(made)
    assert [place.path for place in places] == paths
    for place in places:
        place.put(lambda *args: "put in" if paths == [""] else args[0] * 0)
    assert made(torch.ones(1, 2)) == "put in" if paths == [""] else not made(torch.ones(1, 2)).any()
    for place in places:
        place.put(place.replaced)
    assert torch.equal(made(torch.ones(1, 2)), before)


def test_a_function_has_no_place() -> None:
    """Nobody can replace it where it is held."""
    assert boundaries(lambda x: x) == []


@pytest.mark.parametrize("name", ["plain", "compiled itself", "torch.compile"])
def test_state_of_a_model_has_nothing_of_what_was_put_in(name: str) -> None:
    """Names of parameters, state dict and training mode are as they were."""
    made = FORMS[name][0]()
    before = list(made.state_dict())
    for place in boundaries(made):
        place.put(lambda *args: None)
    assert list(made.state_dict()) == before
    assert not made.eval().training


def test_regions_are_places_under_one_name() -> None:
    """Blocks of one kind can use the same function."""
    made = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(4)))
    assert cachesvc.compile_regions(made)
    places = boundaries(made)
    assert len(places) == 4
    assert len({place.kinds[0] for place in places}) == 1
    assert len({place.kinds[-1] for place in places}) == 4


def test_hooks_are_seen() -> None:
    """Its own, of each kind, and those of all modules; not those of its parts or its state."""
    made = model()
    made[0].register_forward_hook(print)
    made.register_state_dict_pre_hook(print)
    assert not has_hooks(made)
    for register in (made.register_forward_hook, made.register_forward_pre_hook):
        handle = register(print)
        assert has_hooks(made)
        handle.remove()
    handle = nn.modules.module.register_module_forward_hook(print)
    assert has_hooks(made)
    handle.remove()
    assert not has_hooks(made)
