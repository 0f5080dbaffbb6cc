"""The demo for real: three fresh processes, a real compiler, the figures that come of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

WORKLOAD = """
import cachesvc, torch

def build():
    torch.manual_seed(0)
    return cachesvc.Workload("tiny", torch.nn.Linear(4, 4), calls=[(torch.ones(2, 4),)])
"""


@pytest.mark.slow
@pytest.mark.xdist_group("compile")
def test_a_users_own_workload(child: Command) -> None:
    """TARGET may be module:function of the working directory; each arm is what its label says."""
    Path("tiny.py").write_text(WORKLOAD)
    ran = child("demo", "tiny:build", "--store", "store", "--json", timeout_s=240)
    assert ran.code == 0, ran.err
    arms = ran.json["arms"]
    assert {name: arm["verdict"] for name, arm in arms.items()} == {
        "eager": "eager",
        "cold": "cold",
        "warm": "warm",
    }
    assert (arms["warm"]["compiled"], arms["warm"]["native_builds"]) == (0, 0)
    assert ran.json["pack_bytes"] > 0
