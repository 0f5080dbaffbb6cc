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
from collections.abc import Callable, Mapping, Sequence  # noqa: E402
from contextlib import AbstractContextManager, nullcontext  # noqa: E402
from dataclasses import asdict, dataclass, field, replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any, TypeVar  # noqa: E402

from cachesvc.core.digest import Json  # noqa: E402
from cachesvc.core.errors import TccacheError, UsageError  # noqa: E402
from cachesvc.start.access import Access  # noqa: E402

if TYPE_CHECKING:
    from cachesvc.core.report import Report
    from cachesvc.runtime.rounds import Made, Round
    from cachesvc.runtime.workloads import Workload

T = TypeVar("T")
_WARM_START = "cachesvc.start.warm_start"
COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")
_WITHOUT_COMPILER = ("eager", "aot")
_TIERS = {"warm": "no-aot", "aot": "aot,directories"}
"""The arms that call this library, and what each may use of a bundle."""


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What one process is to do.

    `spawned` is the parent's monotonic clock just before the start of the process; on Linux it is
    the same clock in all processes. `reference` is the file of the eager arm's outputs: written by
    that arm, compared by the others. With `proving` outputs are compared one by one, the eager arm
    makes records of them, and the cold arm leaves what a publication needs: its address and its
    context. `mega` is the file of the mega-cache: the cold arm writes it, the mega-cache arm starts
    from it. `functions` is the directory that the capture arm writes to. `tolerance` is relative,
    None for the usual. `access`, `variant` and `options` are the fields of an Access, a
    Variant and of WorkloadOptions. With `rounds` the calls are made so many times more, for at
    most about `enough_s` seconds.
    """

    arm: str
    target: str
    spawned: float
    reference: str
    store: str | None = None
    access: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    publish: bool = False
    proving: bool = False
    tolerance: float | None = None
    mega: str = ""
    variant: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    enough_s: float = 3.0
    functions: str = ""


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
    torch = stages.time("import torch", _torch)
    if spec.arm not in _WITHOUT_COMPILER:
        stages.time("import compiler", lambda: [importlib.import_module(name) for name in COMPILER])
    rounds = importlib.import_module("cachesvc.runtime.rounds")
    workload, notes = stages.time("build model", lambda: _workload(spec))
    facts = _publication_facts(spec, workload) if spec.proving else {}
    eager = spec.arm == "eager"
    calls: Round = rounds.Round(workload, compiled=not eager, traced=eager and spec.proving)
    with torch.set_grad_enabled(workload.training), _stance(torch, eager):
        if spec.arm == "capture":
            return _record(spec, workload, calls)
        if spec.arm not in _TIERS:  # a start that does not call this library has no such stage
            stages.time("import tccache", lambda: importlib.import_module(_WARM_START))
        started = time.monotonic()
        if spec.arm == "megacache":
            stages.time("load", lambda: _load(Path(spec.mega)))
        report = _start(spec, workload, calls)
        made = calls.finish()
        stages.seconds += report.stages
        outcome = _outcome(spec, workload, report, made, started)
        if spec.rounds:
            outcome |= _series(spec, report, made, calls, stages)
    outcome["notes"] = list(notes)
    outcome["stages"] = [list(item) for item in stages.seconds]
    outcome |= {**facts, **_outputs(spec, made), "functions": list(_functions())}
    if spec.mega and spec.arm == "cold":
        outcome |= _captured(Path(spec.mega))
    if spec.publish:
        outcome["published"] = _publish(spec, workload, report)
    return outcome


def _workload(spec: SampleSpec) -> tuple[Workload, list[str]]:
    """The workload, compiled as the variant says; as it was written for the eager arm. And what
    there is to tell of that."""
    from cachesvc.core.variant import Variant
    from cachesvc.core.workload_options import WorkloadOptions
    from cachesvc.runtime.rounds import load_seeded
    from cachesvc.runtime.variants import Compiler

    asked = {**spec.variant, "options": tuple(map(tuple, spec.variant.get("options", ())))}
    options = WorkloadOptions(**{**spec.options, "shapes": tuple(spec.options.get("shapes", ()))})
    variant = Variant(**asked)
    # What has functions needs no `torch.compile`, which alone would import the compiler.
    as_written = spec.arm == "eager" or (spec.arm == "aot" and variant == Variant())
    compiler = Compiler(None if as_written else variant)
    workload = compiler.applied(load_seeded(spec.target, options, compiler))
    return workload, compiler.notes


def _outcome(
    spec: SampleSpec, workload: Workload, report: Report, made: Sequence[Made], started: float
) -> dict[str, Json]:
    """What there is to tell as soon as the calls were made, and before they are made again."""
    return {
        "workload": workload.name,
        "items": workload.items,
        "unit": workload.unit,
        "report": report.to_json(),
        "summary": str(report),
        "compiled": report.counts.compiled,
        "first_call_s": made[0].ended - started,
        "startup_s": made[0].ended - spec.spawned,
    }


def _series(
    spec: SampleSpec, report: Report, made: Sequence[Made], calls: Round, stages: _Stages
) -> dict[str, Json]:
    """The calls that were made, and made again; and the memory that all of it took."""
    from cachesvc.core.measure import CallTime
    from cachesvc.local.host import read_environment
    from cachesvc.runtime.directories import of_process, triton_folder
    from cachesvc.runtime.memory import device_peak_bytes, peak_bytes

    if len(report.calls) < len(made):
        raise TccacheError("; ".join(report.notes) or "not all calls were counted")
    first = [
        CallTime(
            call.signature, call.seconds, told.counts.graphs, told.counts.compiled, call.reason
        )
        for call, told in zip(made, report.calls, strict=True)
    ]
    triton = triton_folder(of_process(read_environment().digest))
    again = list(calls.again(spec.rounds, spec.enough_s, triton))
    stages.seconds.append(("second call", again[0].seconds))
    return {
        "series": [call.to_json() for call in (*first, *again)],
        "round_length": len(made),
        "peak_bytes": peak_bytes(),
        "device_peak_bytes": device_peak_bytes(),
    }


def _functions() -> Sequence[str]:
    """The functions compiled ahead of time that have made a call."""
    tally = sys.modules.get("cachesvc.runtime.aot.tally")
    return () if tally is None else sorted(tally.tally.used)


def _load(mega: Path) -> None:
    """Starts from a mega-cache alone, as torch offers it."""
    from cachesvc.local.megafile import take_apart
    from cachesvc.runtime.megacache import load

    load(take_apart(mega.read_bytes(), str(mega)))


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise TccacheError(
            f"torch cannot be imported ({error}): a start runs the model, so install torch beside"
            " tccache"
        ) from error


def _stance(torch: Any, eager: bool) -> AbstractContextManager[Any]:
    """Runs everything as it was written, in all threads, where something may be compiled."""
    if eager and "torch._dynamo" in sys.modules:
        stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return stance
    return nullcontext()


def _start(spec: SampleSpec, workload: Workload, calls: Round) -> Report:
    from cachesvc.start.warm_start import observe, warm_start

    if spec.arm not in _TIERS:
        return observe(workload.model, calls=calls.calls)
    return warm_start(
        workload.model,
        calls=calls.calls,
        store=spec.store,
        trust=_access(spec),
        label=spec.label or workload.name,
        tier=_TIERS[spec.arm],
        fallback=False,  # another model's bundle would hide that this one was not found
    )


def _record(spec: SampleSpec, workload: Workload, calls: Round) -> dict[str, Json]:
    """Captures the workload's calls as functions, while they are made as they were written."""
    from cachesvc.runtime.aot.recorder import Recorder
    from cachesvc.runtime.context import read_context
    from cachesvc.start.target import chosen_salt, model_address, named_models

    name, model = model_address(workload.model, spec.label or workload.name)
    recorder = Recorder(Path(spec.functions), model.digest[:16], chosen_salt(None))
    recorder.put(named_models(workload.model))
    for call in calls.calls:
        call()
    return {
        "name": name,
        "model": dict(model),
        "context": dict(read_context()),
        "units": list(recorder.units),
        "reasons": list(recorder.reasons),
    }


def _outputs(spec: SampleSpec, made: Sequence[Made]) -> dict[str, Json]:
    """What became of the outputs: kept and recorded by the eager arm, else compared with these."""
    from cachesvc.runtime import rounds
    from cachesvc.runtime.outputs import tolerance

    file, limit = Path(spec.reference), tolerance(spec.tolerance)
    if spec.arm == "eager":
        paths = rounds.random_paths(spec.target, made, limit) if spec.proving else None
        rounds.save(file, made, paths)
    expected = rounds.load(file)
    calls = [_call(call, e, limit) for call, e in zip(made, expected, strict=True)]
    apart = [call["apart"] for call in calls if call["apart"] is not None]
    found: dict[str, Json] = {"calls": list(calls), "difference": max(apart, default=None)}
    if spec.arm == "eager" and spec.proving:
        pairs = zip(made, expected, strict=True)
        found["records"] = [call.record(e["random"], spec.tolerance).to_json() for call, e in pairs]
    return found


def _call(made: Made, expected: Mapping[str, Any], limit: Any) -> dict[str, Any]:
    from cachesvc.runtime.outputs import compare_leaves, distance

    random = frozenset(expected["random"])
    settled = [item for item in expected["output"] if item[0] not in random]
    return {
        "signature": made.signature,
        "seconds": made.seconds,
        "apart": distance(settled, made.output),
        "differences": list(compare_leaves(expected["output"], made.output, limit, random)),
        "random": sorted(random),
    }


def _publication_facts(spec: SampleSpec, workload: Workload) -> dict[str, Json]:
    """Name and model digest, as the model is before its first call."""
    from cachesvc.start.target import model_address

    name, model = model_address(workload.model, spec.label or workload.name)
    return {"name": name, "model": dict(model)}


def _captured(mega: Path) -> dict[str, Json]:
    """The context of this process; and its mega-cache, in a file if it is not empty."""
    from cachesvc.local.megafile import put_together
    from cachesvc.runtime.context import read_context
    from cachesvc.runtime.megacache import capture

    artifacts = capture()
    if artifacts:
        mega.write_bytes(put_together(artifacts))
    return {"context": dict(read_context()), "artifacts": len(artifacts)}


def _access(spec: SampleSpec) -> Access:
    """The value that the spec holds as JSON."""
    said: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in spec.access.items()
    }
    return Access(**said)


def _publish(spec: SampleSpec, workload: Workload, report: Report) -> dict[str, Json]:
    from cachesvc.start.push import push

    label = spec.label or workload.name
    said = _access(spec)
    if said.sign_with:  # what was compiled from nothing, in directories of this sample alone
        said = replace(said, trust=())
    pushed = push(workload.model, store=spec.store, trust=said, label=label, report=report)
    return {
        "address": str(pushed.publication.address),
        "segment": pushed.publication.segment,
        "pack_bytes": pushed.publication.pack_bytes,
        "units": pushed.units,
        "files": pushed.files,
        "bytes": pushed.bytes,
    }


def _told(error: Exception) -> str:
    from cachesvc.runtime.workloads import told

    return told(error)


def main(spec_file: str, result_file: str) -> None:
    spec = SampleSpec(**json.loads(Path(spec_file).read_text()))
    try:
        outcome = run(spec)
    except TccacheError as error:
        outcome = {"error": str(error), "usage": isinstance(error, UsageError)}
    except Exception as error:  # torch, the model or the disk: whoever waits is told in a line
        outcome = {"error": _told(error)}
    Path(result_file).write_text(json.dumps(outcome))


def spec_text(spec: SampleSpec) -> str:
    """The JSON text of a spec."""
    return json.dumps(asdict(spec))


if __name__ == "__main__":
    main(*sys.argv[1:])
