"""One sample of one arm, as the main program of a fresh process.

    python -m cachesvc.start.sample SPEC RESULT

SPEC is a JSON file (`SampleSpec`), RESULT the file that the outcome is written to. What the model
prints goes where it goes.
"""

from __future__ import annotations

import time

_ENTERED = time.monotonic()

import importlib  # noqa: E402 - the clock comes before every import, so that imports are measured
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any, TypeVar  # noqa: E402

from cachesvc.core.digest import Json  # noqa: E402
from cachesvc.core.errors import TccacheError  # noqa: E402

if TYPE_CHECKING:
    from cachesvc.core.report import Report
    from cachesvc.runtime.workloads import Workload

T = TypeVar("T")
COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What one process is to do.

    `spawned` is the parent's monotonic clock just before the start of the process; on Linux it is
    the same clock in all processes. `reference` is the file of the eager arm's first output:
    written by that arm, compared by the others.
    """

    arm: str
    target: str
    spawned: float
    reference: str
    store: str | None = None
    trust: str | None = None
    publish: bool = False


class _Stages:
    """Seconds by stage, in order."""

    def __init__(self, spawned: float) -> None:
        self.seconds: list[tuple[str, float]] = [("interpreter", _ENTERED - spawned)]

    def time(self, name: str, work: Callable[[], T]) -> T:
        started = time.monotonic()
        value = work()
        self.seconds.append((name, time.monotonic() - started))
        return value


def run(spec: SampleSpec) -> dict[str, Json]:
    """Makes the sample; a JSON object with the outcome."""
    stages = _Stages(spec.spawned)
    torch = stages.time("import torch", lambda: importlib.import_module("torch"))
    if spec.arm != "eager":
        stages.time("import compiler", lambda: [importlib.import_module(name) for name in COMPILER])
    workloads = importlib.import_module("cachesvc.runtime.workloads")
    workload: Workload = stages.time("build model", lambda: workloads.load_workload(spec.target))
    model = workload.model if spec.arm == "eager" else torch.compile(workload.model)
    with torch.set_grad_enabled(workload.training):
        report, output, first_call_s, ended = _first_call(spec, model, workload)
        started = time.monotonic()
        model(*workload.calls[0])
        stages.seconds += [*report.stages, ("second call", time.monotonic() - started)]
    if report.first_call_s is None:
        raise TccacheError(f"{spec.target} failed: {'; '.join(report.notes)}")
    outcome: dict[str, Json] = {
        "report": report.to_json(),
        "summary": str(report),
        "first_call_s": first_call_s,
        "startup_s": ended - spec.spawned,
        "stages": [list(item) for item in stages.seconds],
        "difference": _difference(torch, output, Path(spec.reference), spec.arm == "eager"),
    }
    if spec.publish:
        outcome["published"] = _publish(spec, model, workload, report)
    return outcome


def _first_call(
    spec: SampleSpec, model: Any, workload: Workload
) -> tuple[Report, Any, float, float]:
    """The report, the first output, and the seconds up to it, by the sample's own clock."""
    from cachesvc.start.warm_start import observe, warm_start

    outputs: list[tuple[Any, float]] = []

    def call() -> None:
        output = model(*workload.calls[0])
        _synchronize()
        outputs.append((output, time.monotonic()))

    call.__qualname__ = spec.target  # what the bundle will be said to cover
    started = time.monotonic()
    if spec.arm == "warm":
        report = warm_start(
            model, calls=[call], store=spec.store, trust=spec.trust, label=workload.name
        )
    else:
        report = observe(model, calls=[call])
    if not outputs:
        raise TccacheError(f"{spec.target} failed: {'; '.join(report.notes)}")
    output, ended = outputs[0]
    return report, output, ended - started, ended


def _synchronize() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _difference(torch: Any, output: Any, reference: Path, write: bool) -> float | None:
    """The greatest absolute difference from the eager arm's first output, if it is a tensor."""
    if not isinstance(output, torch.Tensor):
        return None
    if write:
        torch.save(output.detach().cpu(), reference)
        return 0.0
    expected = torch.load(reference)
    return float((output.detach().cpu().double() - expected.double()).abs().max())


def _publish(spec: SampleSpec, model: Any, workload: Workload, report: Report) -> dict[str, Json]:
    from cachesvc.start.push import push

    pushed = push(model, store=spec.store, trust=spec.trust, label=workload.name, report=report)
    return {
        "segment": pushed.publication.segment,
        "pack_bytes": pushed.publication.pack_bytes,
        "units": pushed.units,
        "files": pushed.files,
        "bytes": pushed.bytes,
    }


def main(spec_file: str, result_file: str) -> None:
    spec = SampleSpec(**json.loads(Path(spec_file).read_text()))
    try:
        outcome = run(spec)
    except TccacheError as error:
        outcome = {"error": str(error)}
    Path(result_file).write_text(json.dumps(outcome))


def spec_text(spec: SampleSpec) -> str:
    """The JSON text of a spec."""
    return json.dumps(asdict(spec))


if __name__ == "__main__":
    main(*sys.argv[1:])
