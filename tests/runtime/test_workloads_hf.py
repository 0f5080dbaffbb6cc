"""The workloads hf:ARCH: models of the transformers library with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh_processes import QUICK

import cachesvc
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.runtime.workloads import hf, load_workload
from cachesvc.runtime.workloads.architectures import ARCHITECTURES, Work

pytest.importorskip("transformers")
pytestmark = pytest.mark.xdist_group("runtime")

DECODERS = [name for name, of in ARCHITECTURES.items() if of.work is Work.GENERATE]
OTHERS = [("bert", "tokens", 16, "input_ids"), ("vit", "images", 2, "pixel_values")]
NEW = 16


class Watched:
    """In place of torch.compile: keeps the model it was given, and the token ids of each call."""

    def __init__(self) -> None:
        self.model: Any = None
        self.ids: list[torch.Tensor] = []

    def __call__(self, model: Any) -> Callable[..., Any]:
        self.model = model
        return self._called

    def _called(self, **arguments: Any) -> Any:
        self.ids.append(arguments["input_ids"])
        return self.model(**arguments)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """For hundreds of small steps, which wait for each other's threads longer than they take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(arch: str, compile: Callable[[Any], Any], **options: Any) -> cachesvc.Workload:
    return load_workload(f"hf:{arch}", WorkloadOptions("tiny", **options), compile)


@pytest.mark.parametrize("arch", DECODERS)
def test_generate_goes_through_compile(arch: str) -> None:
    """The pass over the prompt and each step; outputs are what an eager run gives, in which
    nothing stands in the model's place, and the same when a call is made again."""
    watched = Watched()
    workload = tiny(arch, watched, shapes=(5, 9))
    plain = tiny(arch, lambda model: model, shapes=(5, 9))
    assert (workload.name, workload.items, workload.unit) == (f"hf-{arch}-tiny", NEW, "tokens")
    signatures = [call.__qualname__ for call in workload.calls]
    assert signatures == ["generate(5 tokens, 16 new)", "generate(9 tokens, 16 new)"]
    outputs = [call() for call in workload.calls]
    tokens = [ids.shape[1] for ids in watched.ids]
    assert tokens == [5, *[1] * (NEW - 1), 9, *[1] * (NEW - 1)]
    assert all(output.shape == (1, NEW, 128) for output in outputs)
    for calls in (workload.calls, plain.calls):
        torch.testing.assert_close([call() for call in calls], outputs)


@pytest.mark.parametrize("arch", DECODERS)
def test_logits_are_of_the_given_text(arch: str) -> None:
    """What the static cache gives step by step, the model gives for prompt and continuation at
    once: no step depends on which token rounding has made the likeliest."""
    watched = Watched()
    (generate,) = tiny(arch, watched, shapes=(5,)).calls
    logits = generate()  # type: ignore[operator]
    with torch.no_grad():
        whole = watched.model(input_ids=torch.cat(watched.ids, 1), use_cache=False).logits
    torch.testing.assert_close(logits, whole[:, 4:])


@pytest.mark.parametrize(("arch", "unit", "items", "argument"), OTHERS)
def test_a_forward_pass(arch: str, unit: str, items: int, argument: str) -> None:
    """The caller compiles the model; there is a call for each shape."""
    workload = tiny(arch, lambda model: pytest.fail("compiled"))
    assert (workload.unit, workload.items) == (unit, items)
    several = tiny(arch, lambda model: pytest.fail("compiled"), shapes=(3, 7))
    length = 1 if arch == "bert" else 0
    assert [call[argument].shape[length] for call in several.calls] == [3, 7]
    with torch.no_grad():
        for call in several.calls:
            assert torch.isfinite(several.model(**call).last_hidden_state).all()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_large_models(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers fit together, and there are many; made without memory for them."""
    monkeypatch.setattr(hf, "device", lambda: torch.device("meta"))
    workload = load_workload(f"hf:{arch}", WorkloadOptions("large"), lambda model: model)
    weights = list(workload.model.parameters())
    assert workload.name == f"hf-{arch}-large"
    assert sum(weight.numel() for weight in weights) > 500e6
    assert {weight.dtype for weight in weights} == {torch.float16}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["llama", "gemma3", "vit"])
def test_a_build(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eagerly, compiled from nothing and started from the bundle it gives the same; warm."""
    (tmp_path / "hf_targets.py").write_text(
        "from cachesvc.core.workload_options import WorkloadOptions\n"
        "from cachesvc.runtime.workloads import load_workload\n"
        f"tiny = lambda: load_workload('hf:{arch}', WorkloadOptions('tiny'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for variable, value in QUICK.items():
        monkeypatch.setenv(variable, value)
    built = cachesvc.build("hf_targets:tiny", dry_run=True)
    assert (built.verdict, built.reasons) == ("warm", ())
