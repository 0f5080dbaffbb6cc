"""Models of the transformers library are captured and called without the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
REPOSITORY = Path(__file__).parents[3]

PRELUDE = """
import sys, torch
from pathlib import Path
sys.path.insert(0, given["repository"])
from benchmarks import families

workload = getattr(families, given["family"])()
model, (call,) = workload.model, workload.calls
"""

RECORD = """
from cachesvc.runtime.aot.recorder import Recorder

recorder = Recorder(Path(given["root"]), "g")
with torch.no_grad():
    recorder.put({"": model})
    model(**call)
result = {"units": len(recorder.units), "reasons": recorder.reasons}
"""

RUN = """
from cachesvc.runtime.aot.arm import arm
from cachesvc.runtime.aot.tally import tally
from cachesvc.runtime.model import read_model
from cachesvc.runtime.outputs import compare

HEAVY = ("torch._dynamo", "torch._inductor")
told = []
with torch.no_grad():
    expected = model(**call)
    before = [name for name in HEAVY if name in sys.modules]  # transformers may import them, too
    arm(
        {"": model},
        {"": read_model(model)},
        list((Path(given["root"]) / "g").iterdir()),
        salt="",
        failed=lambda unit, why: told.append(why),
        missed=lambda: told.append("missed"),
    )
    output = model(**call)
result = {
    "hits": tally.hits,
    "told": told,
    "differences": list(compare(expected, output)),
    "kinds": type(output) is type(expected),
    "imported": [name for name in HEAVY if name in sys.modules and name not in before],
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "t5", "vit", "mixtral", "mamba"])
def test_a_family_is_called_without_the_compiler(fresh: Any, tmp_path: Path, family: str) -> None:
    """Outputs, with the caches among them, are those of eager torch."""
    given = {"repository": REPOSITORY, "family": family, "root": tmp_path}
    recorded = fresh.run(RECORD, given=given, prelude=PRELUDE)
    assert recorded == {"units": 1, "reasons": []}
    told = fresh.run(RUN, given=given, prelude=PRELUDE, own=True)
    assert told == {"hits": 1, "told": [], "differences": [], "kinds": True, "imported": []}
