"""The caller of a compiled function, off the stack."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from cachesvc.runtime.callers import Caller, Callers
from cachesvc.runtime.calls import signature

pytestmark = pytest.mark.xdist_group("runtime")

TORCH = Path(torch.__file__).parent
MODULES = str(TORCH / "nn" / "modules" / "module.py")
WRAPPERS = str(TORCH / "_dynamo" / "eval_frame.py")
CALL = "def {}(inner, self, *args, **kwargs):\n    return inner()\n"


def made(
    file: str, inner: Any, *args: Any, name: str = "call", own: Any = None, **kwargs: Any
) -> Callable[[], Any]:
    """A function of this name in a file of this name, that gives what `inner` gives."""
    scope: dict[str, Any] = {}
    exec(compile(CALL.format(name), file, "exec"), scope)
    return functools.partial(scope[name], inner, own, *args, **kwargs)


def call(file: str, inner: Any, *args: Any, **how: Any) -> Any:
    return made(file, inner, *args, **how)()


def caller(*models: object) -> Caller:
    return Callers(sys._getframe(1)).of({id(model) for model in models})


def test_the_program_is_behind_what_is_installed() -> None:
    """A library that calls the model is called by the program: that is the place."""
    library = "/somewhere/site-packages/library/generation.py"
    found = call(library, lambda: call(MODULES, caller))
    assert found.place.startswith("test_callers.py:")
    python = f"{sysconfig.get_paths()['stdlib']}{os.sep}threading.py"
    assert call(python, caller).place.startswith("test_callers.py:")


def test_a_program_that_is_installed() -> None:
    """Where nothing else is on the stack, the innermost that is not torch's."""
    engine = made("/x/dist-packages/server/engine.py", made(MODULES, caller), name="step")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(engine).result()
    assert found == Caller("", "engine.py:2 in step")


def test_the_innermost_compiled_call_or_the_outermost_of_a_model() -> None:
    """A part that is compiled by itself is called by its model; a module that is not asked for is
    no call, nor is what `torch.compiler.disable` calls."""
    model, block = object(), object()

    class DisableContext:
        pass

    def part() -> Caller:
        return call(WRAPPERS, lambda: caller(model), 3, name="compile_wrapper", own=block)

    def whole() -> Caller:
        return call(MODULES, part, 2, own=block)

    assert whole() == Caller("(3)", whole().place)
    inner = call(MODULES, lambda: call(MODULES, whole, own=model), 1, own=model, flag=True)
    assert (inner.signature, inner.asked) == ("(1, flag=True)", {id(model)})
    disabled = call(WRAPPERS, lambda: caller(model), 4, name="_fn", own=DisableContext())
    assert disabled.signature == ""


def test_a_call_with_very_much_in_it() -> None:
    """Its signature is whole, as in a report, with which it is compared."""
    found = call(WRAPPERS, caller, *range(1000), name="compile_wrapper")
    assert found.signature == signature(range(1000), {})
