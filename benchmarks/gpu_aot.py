"""Functions compiled ahead of time, on a GPU and without a store.

    python -m benchmarks.gpu_aot --smoke
    python -m benchmarks.gpu_aot [--runs 3] [--only NAME...] [--json FILE]

Each start is a fresh process: eager; cold (nothing cached); directories (the compiler finds what
the cold one has left); aot (the functions that one more process has captured). An aot start
imports no compiler. `--smoke` captures four small models, loads them elsewhere and compares. What
is trained makes a step: forward under autocast, loss, backward, an optimizer that is not compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_calls import SMOKE, TRAINING, WORKLOADS, small_model, workload_of
from benchmarks.pairs import Figures

HEAVY = ("torch._inductor", "torch._dynamo", "triton")
BEGAN = "BENCHMARK_BEGAN"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, metavar=("ARM", "NAME", "FOLDER"))
    options = parser.parse_args()
    if options.child:
        arm, name, folder = options.child
        print(json.dumps(CHILDREN[arm](name, Path(folder))))
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.smoke:
            smoke(Path(folder))
            return
        results = {name: compared(name, Path(folder) / name, options.runs) for name in options.only}
    if options.json:
        options.json.write_text(json.dumps({"workloads": results}, indent=2))


def smoke(folder: Path) -> None:
    """Captures the small models in one process, and loads them in another."""
    for arm in ("record", "aot"):
        for name, told in child(arm, "smoke", folder)["models"].items():
            print(f"{arm} {name}: {json.dumps(told)}", flush=True)


def compared(name: str, folder: Path, runs: int) -> dict[str, Any]:
    """All arms of one workload, the quick ones in turn."""
    folder.mkdir()
    child("eager", name, folder)  # fills the disk cache, and writes what the others compare with
    told: dict[str, list[dict[str, Any]]] = {"cold": [child("cold", name, folder)]}
    record = child("record", name, folder)
    print(
        f"{name}: recorded {record['units']} functions, {record['bytes'] / 1e6:.1f} MB", flush=True
    )
    print("".join(f"  {reason}\n" for reason in record["reasons"]), end="")
    for _ in range(runs):
        for arm in ("aot", "eager", "directories"):
            told.setdefault(arm, []).append(sample := child(arm, name, folder))
            first, startup = sample["first_call_s"], sample["startup_s"]
            print(f"  {arm}: first call {first:.3f} s, process {startup:.3f} s", flush=True)
    for arm in ("eager", "cold", "directories", "aot"):
        _print_arm(arm, told[arm])
    figures = {arm: _figures(samples) for arm, samples in told.items()}
    return {"record": record, "arms": {a: {**figures[a], "samples": told[a]} for a in told}}


def _figures(samples: list[dict[str, Any]]) -> dict[str, Any]:
    def spread(key: str) -> dict[str, Any]:
        figures = Figures(tuple(sample[key] for sample in samples))
        values = list(figures.samples)
        return {"median": figures.median, "min": min(values), "max": max(values), "samples": values}

    return {key: spread(key) for key in ("first_call_s", "startup_s")}


def _print_arm(arm: str, samples: list[dict[str, Any]]) -> None:
    first = Figures(tuple(sample["first_call_s"] for sample in samples))
    startup = Figures(tuple(sample["startup_s"] for sample in samples))
    last = samples[-1]
    stages = ", ".join(f"{name} {seconds:.3f}" for name, seconds in last["stages"].items())
    print(f"  {arm:12} first call {first}, process {startup}, apart {last['apart']:.1e}")
    print(f"               {stages}")
    if arm == "aot":
        print(f"               hits {last['hits']}, misses {last['misses']}, heavy {last['heavy']}")
        print("".join(f"               {reason}\n" for reason in last["reasons"]), end="")
    sys.stdout.flush()


def child(arm: str, name: str, folder: Path) -> dict[str, Any]:
    """What one fresh process tells."""
    caches = folder / f"caches-{'empty' if arm == 'aot' else 'filled'}"
    environ = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(caches),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        BEGAN: repr(time.time()),
    }
    command = [sys.executable, "-m", "benchmarks.gpu_aot", "--child", arm, name, str(folder)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{arm} of {name} failed:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    if arm == "record":
        print(done.stderr[-6000:], end="", file=sys.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class Stages:
    """Seconds of what a process does, one after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, name: str) -> float:
        """Ends a stage, when the GPU has done with it, too; its seconds."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
        return self.seconds[name]


def eager(name: str, folder: Path) -> dict[str, Any]:
    """The model as it was written."""
    return _started(name, folder, "eager", lambda model, stages: model)


def cold(name: str, folder: Path) -> dict[str, Any]:
    """Compiled, with whatever lies in the directory of the caches."""

    def compiled(model: Any, stages: Stages) -> Any:
        import torch
        import torch._dynamo
        import torch._inductor.compile_fx

        stages.end("import compiler")
        return torch.compile(model)

    return _started(name, folder, "compiled", compiled)


def aot(name: str, folder: Path) -> dict[str, Any]:
    """Armed with what was recorded."""
    if name == "smoke":
        return {"models": dict(_smoked(folder, _armed_small))}
    return _started(name, folder, "aot", _armed(folder))


def record(name: str, folder: Path) -> dict[str, Any]:
    """Captures the calls of a workload."""
    import torch

    _show_tracebacks()
    if name == "smoke":
        return {"models": dict(_smoked(folder, _recorded_small))}
    model, calls = workload_of(name)
    with torch.set_grad_enabled(name.endswith(TRAINING)):
        return _recorded(folder, model, calls)


CHILDREN: dict[str, Callable[[str, Path], dict[str, Any]]] = {
    "eager": eager,
    "cold": cold,
    "directories": cold,
    "record": record,
    "aot": aot,
}


def _started(
    name: str, folder: Path, kind: str, prepare: Callable[[Any, Stages], Any]
) -> dict[str, Any]:
    stages = Stages()
    import torch

    stages.end("import torch")
    model, (call,) = workload_of(name)
    stages.end("build")
    with torch.set_grad_enabled(name.endswith(TRAINING)):
        ready = prepare(model, stages)
        output = call(ready)
        stages.end("first call")
        startup_s = time.time() - float(os.environ[BEGAN])
        call(ready)
        stages.end("second call")
    begun = ("load", "first call")
    return {
        "first_call_s": sum(stages.seconds.get(stage, 0.0) for stage in begun),
        "startup_s": startup_s,
        "stages": stages.seconds,
        "apart": _apart(output, folder / "expected.pt", writes=kind == "eager"),
        **(_told_of_aot() if kind == "aot" else {}),
    }


def _armed(folder: Path) -> Callable[[Any, Stages], Any]:
    def prepare(model: Any, stages: Stages) -> Any:
        from cachesvc.runtime.aot.arm import arm
        from cachesvc.runtime.model import read_model

        begun = time.perf_counter()
        reading = read_model(model)
        stages.seconds["of which digest"] = time.perf_counter() - begun
        found = [path.parent for path in (folder / "functions").rglob("function.json")]
        armed = arm({"": model}, {"": reading}, found, salt="", failed=_failed, missed=lambda: None)
        REASONS.extend(armed.reasons)
        stages.end("load")
        return model

    return prepare


REASONS: list[str] = []


def _failed(unit: str, reason: str) -> None:
    REASONS.append(f"{unit} has failed: {reason}")


def _told_of_aot() -> dict[str, Any]:
    from cachesvc.runtime.aot.tally import tally

    return {
        "hits": tally.hits,
        "misses": tally.misses,
        "reasons": [*REASONS, *tally.reasons],
        "heavy": [name for name in HEAVY if name in sys.modules],
    }


def _recorded(folder: Path, model: Any, calls: Any) -> dict[str, Any]:
    from cachesvc.runtime.aot.arm import disarm
    from cachesvc.runtime.aot.boundary import boundaries
    from cachesvc.runtime.aot.recorder import Recorder

    folder.mkdir(exist_ok=True)
    recorder = Recorder(folder / "functions", "group")
    places = boundaries(model)
    recorder.put({"": model})
    begun = time.perf_counter()
    output = [call(model) for call in calls]
    for place in places:
        place.put(place.replaced)
    disarm({"": model})
    if not (folder / "expected.pt").exists():
        _apart(output[0], folder / "expected.pt", writes=True)
    files = [path for path in (folder / "functions").rglob("*") if path.is_file()]
    return {
        "units": len(recorder.units),
        "reasons": recorder.reasons,
        "seconds": time.perf_counter() - begun,
        "bytes": sum(path.stat().st_size for path in files),
        "kernels": sum(path.suffix in (".cubin", ".so") for path in files),
    }


def _smoked(
    folder: Path, told: Callable[[str, Path], dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    import torch

    for small in SMOKE:
        with torch.set_grad_enabled(small.endswith(TRAINING)):
            yield small, told(small, folder / small)


def _recorded_small(name: str, folder: Path) -> dict[str, Any]:
    return _recorded(folder, *small_model(name))


def _armed_small(name: str, folder: Path) -> dict[str, Any]:
    from cachesvc.runtime.aot.tally import tally

    model, calls = small_model(name)
    stages = Stages()
    model = _armed(folder)(model, stages)
    before = tally.hits
    outputs = [call(model) for call in calls]
    stages.end("first call")
    again = [call(model) for call in calls]
    stages.end("second call")
    told = {
        "apart": _apart(outputs[0], folder / "expected.pt", writes=False),
        "again": _apart(again[0], folder / "expected.pt", writes=False),
        "hits": tally.hits - before,
        "misses": dict(tally.reasons),
        "reasons": REASONS[:],
        "heavy": [name for name in HEAVY if name in sys.modules],
        "stages": {name: round(s, 4) for name, s in stages.seconds.items()},
    }
    REASONS.clear()
    return told


def _show_tracebacks() -> None:
    """Prints where a capture fails, which a recorder tells in a line."""
    import traceback

    from cachesvc.runtime.aot import recorder

    capture = recorder.capture

    def shown(*given: Any) -> Any:
        try:
            return capture(*given)
        except Exception:
            traceback.print_exc(limit=-12)
            raise

    recorder.capture = shown


def _apart(output: Any, file: Path, *, writes: bool) -> float:
    """The greatest difference from the eager output, over its greatest value."""
    import torch

    found = _first_tensor(output).detach().float().cpu()
    if writes:
        torch.save(found, file)
    expected = torch.load(file)
    return float((found - expected).abs().max() / expected.abs().max())


def _first_tensor(output: Any) -> Any:
    import torch

    if isinstance(output, torch.Tensor):
        return output
    values = output.values() if isinstance(output, dict) else output
    return _first_tensor(next(iter(values)))


if __name__ == "__main__":
    main()
