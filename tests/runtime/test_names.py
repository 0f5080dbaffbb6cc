"""Names of functions are looked up for those who read them."""

from __future__ import annotations

import logging
from types import ModuleType

import pytest

from cachesvc.runtime import names


def dynamo() -> ModuleType:
    module = ModuleType("torch._dynamo.symbolic_convert")
    vars(module).update(
        get_funcname=lambda file, line: f"{file}:{line}",
        trace_call_log=logging.Logger("calls", logging.WARNING),
        trace_source_log=logging.Logger("source", logging.WARNING),
    )
    return module


def test_nobody_reads_them() -> None:
    """While both logs are off there is no name, as for a file that cannot be read."""
    module = dynamo()
    names._watch(module)
    assert module.get_funcname("model.py", 3) is None


@pytest.mark.parametrize("log", ["trace_call_log", "trace_source_log"])
def test_somebody_reads_them(log: str) -> None:
    """Also one who switches a log on after the start."""
    module = dynamo()
    names._watch(module)
    getattr(module, log).setLevel(logging.DEBUG)
    assert module.get_funcname("model.py", 3) == "model.py:3"


@pytest.mark.parametrize("missing", ["get_funcname", "trace_call_log", "trace_source_log"])
def test_another_dynamo(missing: str) -> None:
    """One that lacks the function, or a log that might show it, is left as it is."""
    module = dynamo()
    delattr(module, missing)
    before = dict(vars(module))
    names._watch(module)
    assert vars(module) == before
