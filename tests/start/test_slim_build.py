"""A slim build stages, verifies and publishes kernels without their texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.components import Components
from cachesvc.start import build
from cachesvc.start.goods import Goods, from_trees
from cachesvc.start.trees import Trees

from .builds import Builds


@pytest.mark.slow
@pytest.mark.parametrize("slim", [False, True])
def test_a_build_can_be_slim(
    fresh: Any, h200_tree: Path, monkeypatch: pytest.MonkeyPatch, slim: bool
) -> None:
    """Of a model whose process has left the kernels of an H200 behind."""

    def with_kernels(trees: Trees, context: Components) -> Goods:
        return from_trees(replace(trees, triton=h200_tree / "triton"), context)

    monkeypatch.setattr(build, "from_trees", with_kernels)
    built = Builds(fresh).build("build_targets:linear", dry_run=True, slim=slim)
    assert (built.bytes < 10e6) is slim
