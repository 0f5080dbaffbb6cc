"""torch's own kernels are found again by where they are."""

from __future__ import annotations

import importlib

import pytest
import torch

from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.externs import extern_places, extern_table


def test_a_kernel_of_torch_is_torchs_function() -> None:
    """So that nothing but torch is imported for it."""
    places = extern_places(["mm", "addmm"])
    assert places == {"mm": "torch:mm", "addmm": "torch:addmm"}
    assert extern_table(places).addmm is torch.addmm


def test_a_kernel_of_inductor_is_imported_from_there() -> None:
    """Slower, and right."""
    importlib.import_module("torch._inductor.kernel.mm")
    table = importlib.import_module("torch._inductor.select_algorithm").extern_kernels
    places = extern_places(["bias_addmm"])
    assert places["bias_addmm"].startswith("torch._inductor.")
    assert extern_table(places).bias_addmm is table.bias_addmm


def test_a_kernel_that_no_name_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cannot be captured, and the reason names it."""
    table = importlib.import_module("torch._inductor.select_algorithm").extern_kernels
    monkeypatch.setattr(table, "odd", lambda: 0, raising=False)
    with pytest.raises(TccacheError, match="calls odd"):
        extern_places(["odd"])


def test_a_graph_without_any() -> None:
    """Does not even import the table."""
    assert extern_places([]) == {}
