"""Inductor's workers are started for those who compile."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from cachesvc.runtime import pool


class Torch:
    """The parts of Inductor that start workers, and how often they did."""

    def __init__(self) -> None:
        self.started = 0
        torch = self

        class AsyncCompile:
            @classmethod
            def use_process_pool(cls) -> bool:
                torch.started += 1
                return True

            @classmethod
            def wakeup(cls) -> None:
                torch.started += 1

        self.workers: Any = ModuleType("torch._inductor.async_compile")
        self.workers.AsyncCompile = AsyncCompile
        self.workers.maybe_warm_pool = self._warm
        self.graphs: Any = ModuleType("torch._inductor.compile_fx")
        self.graphs.fx_codegen_and_compile = lambda graph: graph

    def _warm(self) -> None:
        self.started += 1

    def first_graph(self) -> bool:
        self.workers.maybe_warm_pool()
        self.workers.AsyncCompile.wakeup()
        return bool(self.workers.AsyncCompile.use_process_pool())


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Watched, and a start under way."""
    monkeypatch.setattr(pool, "_hook", lambda: None)
    monkeypatch.setattr(pool._Spared, "now", False)
    monkeypatch.setattr(pool._Spared, "warm", None)
    found = Torch()
    pool._watch_workers(found.workers)
    pool._watch_graphs(found.graphs)
    pool.spare_pool()
    return found


def test_a_start_that_finds_everything(torch: Torch) -> None:
    """Starts no worker, and its kernels are loaded without them."""
    assert torch.first_graph() is False
    assert torch.started == 0


def test_a_graph_that_is_compiled(torch: Torch) -> None:
    """Workers are started before its code is generated, and used from then on."""
    torch.first_graph()
    assert torch.graphs.fx_codegen_and_compile("graph") == "graph"
    assert torch.started == 1
    assert torch.first_graph() is True
    assert torch.started == 4


def test_the_next_start(torch: Torch) -> None:
    """Spares them anew, whatever was compiled before."""
    torch.graphs.fx_codegen_and_compile("graph")
    pool.spare_pool()
    assert torch.first_graph() is False
    assert torch.started == 1


def test_without_a_start_they_are_started(torch: Torch) -> None:
    """Watching changes nothing by itself."""
    pool._Spared.now = False
    assert torch.first_graph() is True
    assert torch.started == 3


@pytest.mark.parametrize("missing", ["maybe_warm_pool", "AsyncCompile"])
def test_other_workers(torch: Torch, missing: str) -> None:
    """A torch that starts them in another way is left as it is."""
    other = Torch()
    delattr(other.workers, missing)
    before = dict(vars(other.workers))
    pool._watch_workers(other.workers)
    assert vars(other.workers) == before


def test_nothing_tells_of_a_compile(torch: Torch) -> None:
    """Then they are started as soon as that is known."""
    other = Torch()
    del other.graphs.fx_codegen_and_compile
    pool._watch_graphs(other.graphs)
    assert torch.started == 1
    assert torch.first_graph() is True
