"""Targets: demo:NAME and module:function."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachesvc.core.errors import UsageError
from cachesvc.runtime.workloads import load_workload

pytestmark = pytest.mark.xdist_group("runtime")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("demo:nothing", "choose one of gpt"),
        ("demo:", "demo:NAME or module:function"),
        ("nothing", "module:function"),
        (":function", "module:function"),
        ("no_such_module:function", "no_such_module"),
        ("cachesvc:no_such_function", "no_such_function"),
        ("built_wrongly:nothing", "gave a NoneType, not a cachesvc.Workload"),
    ],
)
def test_what_names_no_workload_is_refused(
    target: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what was wrong with the target."""
    (tmp_path / "built_wrongly.py").write_text("def nothing():\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=reason):
        load_workload(target)


def test_the_demo_is_a_workload() -> None:
    """It has a name that can be a bundle's, and calls that fit its model."""
    workload = load_workload("demo:gpt")
    assert workload.name == "demo-gpt"
    assert workload.model(*workload.calls[0]).shape[:2] == workload.calls[0][0].shape
