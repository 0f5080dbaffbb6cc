"""Incidents: graph breaks, recompiles and bypasses, with reason and place, from real compiles."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from fresh_processes import FreshProcesses

pytestmark = pytest.mark.xdist_group("runtime")

MODEL = """
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Model(torch.nn.Module):
    def forward(self, x):
        y = x @ x
        print("here")
        y = y @ x
        if y.sum() > 0:
            y = y @ x
        return y


def squared(x):
    return Square.apply(x).sum()
"""

SCRIPT = """
sys.path.insert(0, given["folder"])
import app
from cachesvc.runtime.counters import Meter
from cachesvc.runtime.incidents import IncidentMeter

counter, meter = Meter(None), IncidentMeter()
result = [[item.to_json() for item in meter.read()]]
model = torch.compile(app.Model(), dynamic=False)
with torch.no_grad():
    for size in (2, 3):
        model(ones(size, size))
torch.compile(app.squared)(torch.ones(2, 2, requires_grad=True)).backward()
result += [[item.to_json() for item in meter.read()], counter.read().graph_breaks]
result += [[item.to_json() for item in IncidentMeter().read()]]
"""


@pytest.fixture(scope="module")
def found(fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Incidents before, after, the number of graph breaks, and those of a meter made at the end."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "app.py").write_text(MODEL)
    return fresh.run(SCRIPT, given={"folder": str(folder)})


def of_kind(incidents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in incidents if item["kind"] == kind]


def place_of(text: str) -> str:
    lines = MODEL.splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"app.py:{number}"


def test_nothing_at_first(found: Any) -> None:
    """A meter tells of what comes after it, and torch's records are read, not cleared."""
    before, during, _, after = found
    assert before == after == []
    assert during


def test_graph_breaks(found: Any) -> None:
    """Each with the compiler's reason and the line, and as often as the counter says."""
    _, incidents, count, _ = found
    printed, branched = sorted(of_kind(incidents, "graph break"), key=lambda item: item["place"])
    assert "`print`" in printed["reason"]
    # Where Python goes on after the break.
    assert printed["place"] == f"{place_of('print')} in forward"
    assert "data-dependent" in branched["reason"].lower()
    assert branched["place"] == place_of("if y.sum()")
    assert printed["count"] + branched["count"] == count == 4


def test_recompiles(found: Any) -> None:
    """Each with the guard that failed."""
    _, incidents, _, _ = found
    recompiles = of_kind(incidents, "recompile")
    assert len(recompiles) == 3
    assert all("expected 2, actual 3" in item["reason"] for item in recompiles)
    assert {item["place"].partition(":")[0] for item in recompiles} == {"app.py"}


def test_bypasses(found: Any) -> None:
    """Each with the reason that the cache gave."""
    _, incidents, _, _ = found
    (bypass,) = of_kind(incidents, "bypass AOTAutograd")
    assert "autograd_function_apply" in bypass["reason"]
    assert bypass["count"] == 1


def test_a_torch_without_records_has_no_incidents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing raises, and the counts stand alone."""
    from torch._dynamo import utils

    from cachesvc.runtime.incidents import IncidentMeter

    monkeypatch.delattr(utils, "get_compilation_metrics")
    monkeypatch.delattr(utils, "counters")
    assert IncidentMeter().read() == ()


def test_an_old_record_is_not_taken_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps the last records only; one that comes to lie in memory where a forgotten one was
    is another all the same, so a meter keeps those that it knows."""
    from torch._dynamo import utils

    from cachesvc.runtime.incidents import IncidentMeter

    class Record:
        co_name, co_filename = "f", "f.py"

        def __init__(self, reason: str) -> None:
            self.recompile_reason = reason

    records = [Record("0/0: old")]
    old = weakref.ref(records[0])
    monkeypatch.setattr(utils, "get_compilation_metrics", lambda: list(records))
    meter = IncidentMeter()
    records[:] = [Record("0/1: new")]
    assert old() is not None
    assert [incident.reason for incident in meter.read()] == ["new"]
