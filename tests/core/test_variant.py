"""Variants and workload options: what can be asked for, and how it is called."""

from __future__ import annotations

import pytest

from cachesvc.core.errors import UsageError
from cachesvc.core.variant import Variant
from cachesvc.core.workload_options import WorkloadOptions


@pytest.mark.parametrize(
    ("variant", "label", "arguments"),
    [
        (Variant(), "default", {}),
        (Variant("max-autotune"), "max-autotune", {"mode": "max-autotune"}),
        (Variant(regions=True), "default+regions", {}),
        (
            Variant("reduce-overhead", dynamic=True, regions=True),
            "reduce-overhead+regions+dynamic",
            {"mode": "reduce-overhead", "dynamic": True},
        ),
        (
            Variant(options=(("max_autotune", True), ("cpp.simdlen", 256)), dynamic=False),
            "max_autotune=true,cpp.simdlen=256+static",
            {"options": {"max_autotune": True, "cpp.simdlen": 256}, "dynamic": False},
        ),
    ],
)
def test_variants(variant: Variant, label: str, arguments: dict[str, object]) -> None:
    """Each has a label of its own, and says to torch only what was asked for."""
    assert variant.label == label == variant.to_json()["label"]
    assert variant.arguments() == arguments


def test_what_torch_does_not_take() -> None:
    """A mode that does not exist, and a mode beside options: said before anything runs."""
    with pytest.raises(UsageError, match="no mode fast: choose one of default, reduce"):
        Variant("fast")
    with pytest.raises(UsageError, match="not both"):
        Variant("max-autotune", options=(("max_autotune", True),))


def test_options() -> None:
    """A function is given what was asked for and nothing else."""
    assert WorkloadOptions().arguments() == {}
    asked = WorkloadOptions("tiny", (1, 2), train=True)
    assert asked.arguments() == {"size": "tiny", "shapes": (1, 2), "train": True}
    assert asked.to_json() == {"size": "tiny", "shapes": [1, 2], "train": True}
    with pytest.raises(UsageError, match="positive"):
        WorkloadOptions(shapes=(4, 0))
