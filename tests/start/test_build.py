"""build: what is published was compiled in one process and verified in another, or nothing is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc import Built, build, demo, show
from cachesvc.core.errors import IntegrityError, TccacheError, UntrustedError, UsageError
from cachesvc.core.manifest import Manifest
from cachesvc.core.report import Verdict
from cachesvc.start import process
from cachesvc.start.keys import make_key

from .builds import TARGETS, Builds

pytestmark = pytest.mark.xdist_group("start")


@pytest.fixture(scope="session")
def builds(fresh: Any) -> Builds:
    return Builds(fresh)


@pytest.fixture(scope="session")
def linear(builds: Builds, tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Path]:
    """A published build of one product with two calls."""
    store = tmp_path_factory.mktemp("linear") / "store"
    return builds.build("build_targets:linear", store=store, tags=["v1"], tier="no-aot"), store


def manifest_of(store: Path) -> Manifest:
    """The one manifest in a store."""
    (file,) = store.glob("bundles/*/*/*/*.json")
    return Manifest.parse(file.read_bytes())


def test_a_build(linear: tuple[Built, Path]) -> None:
    """The bundle lies under the workload's name with both calls, seconds, the checks that were
    passed, and a record of each output that knows its inputs and weights."""
    built, store = linear
    assert (built.verdict, built.dry_run, built.reasons) == (Verdict.WARM, False, ())
    assert (built.functions, built.aot_reasons) == (0, ("the tier was set to no-aot",))
    assert built.cold_s > built.warm_s > 0
    assert [call.signature for call in built.calls] == ["(float32[2, 4])", "(x=float32[2, 4])"]
    assert all(call.difference is not None and call.difference < 1e-6 for call in built.calls)
    assert built.added == built.units > 0
    manifest = manifest_of(store)
    assert str(manifest.address) == str(built.address)
    assert manifest.address.name == "linear"
    assert manifest.coverage == ("(float32[2, 4])", "(x=float32[2, 4])")
    assert manifest.tags == ("v1",)
    assert {unit.section for unit in manifest.units} == {"inductor", "megacache"}
    assert manifest.units[0].origin.context["threads"]
    proof = manifest.proof
    assert proof is not None
    assert proof.verdict is Verdict.WARM
    assert proof.cold_s
    assert proof.warm_s
    assert proof.verified == built.verified
    assert built.verified[0] == (
        "outputs of 2 calls equal to eager within the usual tolerance of each dtype"
    )
    first, second = proof.outputs
    assert (first.call, second.call) == manifest.coverage
    assert first.is_comparable
    assert second.is_comparable
    assert first.weights == second.weights
    assert first.inputs != second.inputs
    assert [tensor.path for tensor in first.tensors] == ["output"]
    assert len(first.tensors[0].sample) == 8


def test_what_was_built_starts_warm_elsewhere(builds: Builds, linear: tuple[Built, Path]) -> None:
    """A process that knows nothing of the build compiles nothing, and gives eager's outputs."""
    _, store = linear
    report, apart = builds.serve(
        """
report, outputs = serve("build_targets:linear")
expected = eager("build_targets:linear")
apart = [float((a - b).abs().max()) for a, b in zip(outputs, expected, strict=True)]
result = [report.to_json(), apart]
""",
        store=store,
    )
    assert report["verdict"] == "warm"
    assert report["cold_s"] > 0
    assert apart == pytest.approx([0, 0], abs=1e-6)


def test_a_signed_build(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are for the store that was named, not for the build's own scratch; a process that
    trusts the key, also as two processes publish and read under one environment, starts warm."""
    make_key(tmp_path / "key")
    monkeypatch.setenv("TCCACHE_TRUST", str(tmp_path / "key.pub"))
    monkeypatch.setenv("TCCACHE_SIGN_WITH", str(tmp_path / "key"))
    store = tmp_path / "store"
    built = builds.build("build_targets:linear", store=store, tier="no-aot")
    (segment,) = store.rglob("*.sig")
    assert segment.name == f"{built.segment}.sig"
    script = "result = serve('build_targets:linear')[0].to_json()"
    served = builds.serve(script, store=store)
    monkeypatch.setenv("TCCACHE_TRUST", str(make_key(tmp_path / "other").public_file))
    monkeypatch.delenv("TCCACHE_SIGN_WITH")
    refused = builds.serve(script, store=store)
    assert served["verdict"] == "warm"
    assert refused["verdict"] == "cold"
    assert "is not trusted here" in " ".join(refused["notes"])


def test_building_again_adds_nothing(builds: Builds, linear: tuple[Built, Path]) -> None:
    """The second build of the same is verified too, and finds all of it in the store."""
    built, store = linear
    before = sorted(store.rglob("*"))
    again = builds.build("build_targets:linear", store=store, tier="no-aot")
    assert (again.verdict, again.segment, again.added) == (Verdict.WARM, None, 0)
    assert again.units == built.units
    assert sorted(store.rglob("*")) == before


def test_a_dry_run_with_another_name(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is done but the publication, functions too; label and salt are in the address; settings
    of this library that the caller has reach none of the processes."""
    monkeypatch.setenv("TCCACHE_SALT", "of the environment")
    monkeypatch.setenv("TCCACHE_DEADLINE", "0")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine"))
    seen: list[str] = []
    found = builds.build(
        "build_targets:linear", label="other", salt="s", dry_run=True, progress=seen.append
    )
    assert (found.verdict, found.dry_run, found.segment) == (Verdict.WARM, True, None)
    assert found.address.name == "other"
    assert found.pack_bytes > 0
    assert not (tmp_path / "mine").exists()
    assert [step for step in seen if step.split()[0] in ("run", "compile", "verify")] == [
        "run eagerly",
        "compile",
        "verify in a fresh process",
        "compile ahead of time",
        "verify the functions in a fresh process",
    ]
    assert (found.functions, found.aot_reasons) == (2, ())


def refused(builds: Builds, function: str, store: Path, **options: Any) -> TccacheError:
    """The error of a build that publishes nothing."""
    with pytest.raises(TccacheError) as caught:
        builds.build(f"build_targets:{function}", store=store, **options)
    assert not store.exists()
    assert f"build_targets:{function}" in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_call_that_fails(builds: Builds, tmp_path: Path) -> None:
    """The call is named by its number and signature, with the exception and its place."""
    text = str(refused(builds, "broken", tmp_path / "store"))
    assert "call 2 of 2, (float32[3, 4]): ValueError: no batch of 3" in text
    assert "build_targets.py:" in text


def test_outputs_that_differ(builds: Builds, tmp_path: Path) -> None:
    """Where the compiled model gives something else, call, path and both values are named."""
    error = refused(builds, "lying", tmp_path / "store")
    assert isinstance(error, IntegrityError)
    assert "compiled from nothing, does not give what eager torch gives" in str(error)
    (issue,) = error.issues
    assert issue.startswith("call 1 of 1, (float32[2, 4]): output['scores'] has ")
    assert " and should have " in issue
    assert "8 of 8 values differ" in issue


@pytest.mark.parametrize("function", ["never_compiled", "calling_what_is_not_compiled"])
def test_nothing_was_compiled(builds: Builds, tmp_path: Path, function: str) -> None:
    """Another backend, or a callable that calls the model as it was written: nothing to publish."""
    text = str(refused(builds, function, tmp_path / "store"))
    assert "was eager, so nothing is published: nothing was compiled by Inductor" in text


def test_a_model_that_is_another_one_in_each_process(builds: Builds, tmp_path: Path) -> None:
    """What no other process would find is not published, and what differs is named."""
    text = str(refused(builds, "volatile", tmp_path / "store"))
    assert "is another one in each process, so nothing is published" in text
    assert "offset" in text


def test_a_target_that_needs_its_working_directory(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules are found from where the build was started, files are not: a serving process starts
    elsewhere, and the error says so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "width.txt").write_text("3")
    text = str(refused(builds, "only_here", tmp_path / "store"))
    assert "the warm start of" in text
    assert "from another working directory and HOME failed" in text
    assert "width.txt" in text


def test_a_model_with_a_graph_break(builds: Builds, tmp_path: Path) -> None:
    """Both parts come from the cache, so the start is warm."""
    built = builds.build("build_targets:graph_break", store=tmp_path / "store", tier="no-aot")
    assert built.verdict is Verdict.WARM


def test_two_models_in_one_process(builds: Builds, tmp_path: Path) -> None:
    """They make one bundle; a start that has both is warm."""
    built = builds.build("build_targets:two_models", store=tmp_path / "store", tier="no-aot")
    assert built.verdict is Verdict.WARM
    assert [call.signature.rpartition(".")[2] for call in built.calls] == ["encode", "both"]
    report, apart = builds.serve(
        """
report, outputs = serve("build_targets:two_models")
expected = eager("build_targets:two_models")
apart = [float((a - b).abs().max()) for a, b in zip(outputs, expected, strict=True)]
result = [report.to_json(), apart]
""",
        store=tmp_path / "store",
    )
    assert report["verdict"] == "warm"
    assert apart == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.slow
def test_a_custom_function(builds: Builds, tmp_path: Path) -> None:
    """AOTAutograd stores nothing for it and Inductor does: the bundle is published as partial, and
    says why, in the result and in the proof."""
    built = builds.build("build_targets:custom_function", store=tmp_path / "store")
    assert built.verdict is Verdict.PARTIAL
    assert built.reasons
    proof = manifest_of(tmp_path / "store").proof
    assert proof is not None
    assert proof.verdict is Verdict.PARTIAL
    assert set(built.reasons) <= set(proof.verified)


@pytest.mark.slow
def test_outputs_that_depend_on_random_numbers(builds: Builds, tmp_path: Path) -> None:
    """They are found by another seed, checked for structure alone, and recorded so; the others
    are compared as ever."""
    built = builds.build("build_targets:dropping", store=tmp_path / "store")
    assert built.verdict is Verdict.WARM
    assert built.calls[0].random == ("output['out']",)
    assert any("random numbers" in text for text in built.verified)
    proof = manifest_of(tmp_path / "store").proof
    assert proof is not None
    out, batch = proof.outputs[0].tensors
    assert (out.path, out.shape, out.sample) == ("output['out']", (8, 64), ())
    assert len(batch.sample) == 16


@pytest.mark.slow
def test_training_steps(builds: Builds, tmp_path: Path) -> None:
    """Forward, backward and a compiled optimizer come from the cache, and train as eager does."""
    built = builds.build("build_targets:resnet_training", store=tmp_path / "store")
    assert built.verdict is Verdict.WARM, built.reasons
    report, losses, expected = builds.serve(
        """
report, outputs = serve("build_targets:resnet_training")
expected = eager("build_targets:resnet_training")
result = [report.to_json(), [o["loss"] for o in outputs], [o["loss"] for o in expected]]
""",
        store=tmp_path / "store",
    )
    assert report["verdict"] == "warm"
    assert losses == pytest.approx(expected, rel=1e-4)
    assert losses[1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("function", ["llama", "bert", "vit"])
def test_hugging_face(builds: Builds, tmp_path: Path, function: str) -> None:
    """Models of transformers start warm in another process, and give eager's outputs there."""
    pytest.importorskip("transformers")
    built = builds.build(f"build_targets:{function}", store=tmp_path / "store")
    assert built.verdict is Verdict.WARM, built.reasons
    report, apart = builds.serve(
        f"""
report, (output,) = serve("build_targets:{function}")
(expected,) = eager("build_targets:{function}")
result = [report.to_json(), float((output[0] - expected[0]).abs().max())]
""",
        store=tmp_path / "store",
    )
    assert report["verdict"] == "warm"
    assert apart == pytest.approx(0, abs=1e-4)


def test_what_is_wrong_at_once_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is started for a target, a store, a tag or a tolerance that cannot be one, nor
    where this library is switched off."""
    monkeypatch.setattr(process, "execute", None)
    for target in ("nonsense", "demo:nothing", ":f", "m:"):
        with pytest.raises(UsageError):
            build(target, store=tmp_path)
    with pytest.raises(UntrustedError):
        build("m:f", store="s3://bucket/prefix")
    with pytest.raises(UsageError, match="no store"):
        build("m:f")
    with pytest.raises(UsageError, match="no tag"):
        build("m:f", store=tmp_path, tags=[""])
    for tolerance in (-1.0, 1.0, float("nan")):
        with pytest.raises(UsageError, match="tolerance"):
            build("m:f", store=tmp_path, tolerance=tolerance)
    monkeypatch.setenv("TCCACHE_DISABLE", "1")
    with pytest.raises(TccacheError, match="TCCACHE_DISABLE is set"):
        build("m:f", store=tmp_path)


MODULES = {
    "does_not_parse": ("def f(:\n", "cannot import does_not_parse: SyntaxError"),
    "does_not_import": ("import nowhere\n", "No module named 'nowhere'"),
    "has_none": ("", "has no attribute 'f'"),
    "gives_up": ("import sys\nsys.exit('no GPU')\n", "SystemExit: no GPU"),
}


@pytest.mark.parametrize("module", MODULES)
def test_a_target_that_does_not_load(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """It is a usage error that says why and where."""
    text, reason = MODULES[module]
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        builds.build(f"{module}:f", store=tmp_path / "store")
    assert reason in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_a_process_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that leaves no word is told by its signal: memory that ran out looks like that."""
    monkeypatch.setenv("PYTHONPATH", str(TARGETS))
    with pytest.raises(TccacheError, match=r"killed by SIGKILL \(was there too little memory\?\)"):
        build("build_targets:killed", store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


WAITING = """
import sys, cachesvc
from cachesvc.start import process
from cachesvc.start.keys import make_key

def execute(*_):
    print("child", "torch" in sys.modules, flush=True)
    sys.stdin.read()

process.execute = execute
cachesvc.build("m:f", store=sys.argv[1])
"""


@pytest.mark.parametrize(("number", "cleans_up"), [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_a_build_that_is_stopped(tmp_path: Path, number: signal.Signals, cleans_up: bool) -> None:
    """Nothing is in the store; Ctrl-C leaves no temporary directory either. The process that
    builds does not import torch itself."""
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-c", WAITING, str(tmp_path / "store")]
    environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "child False\n"
        child.send_signal(number)
        child.communicate(timeout=60)
    assert child.returncode == -number
    assert not (tmp_path / "store").exists()
    assert (list((tmp_path / "tmp").glob("tccache-build-*")) == []) is cleans_up


def test_nothing_can_be_run_from_the_temporary_directory(
    mount: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hardened servers mount /tmp so: the variable that helps is named before any process is
    started, and nothing is left there."""
    disk = mount("noexec")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    monkeypatch.setattr(process, "execute", lambda *_: pytest.fail("a process was started"))
    verbs: dict[str, Callable[..., Any]] = {"build_targets:linear": build, "demo:gpt": demo}
    for target, verb in verbs.items():
        with pytest.raises(TccacheError, match=r"noexec.* set TMPDIR to ") as caught:
            verb(target, store=tmp_path / "store")
        assert str(disk) in str(caught.value)
    assert list(disk.iterdir()) == []
    assert not (tmp_path / "store").exists()


def test_a_build_killed_while_it_is_verified(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the last check has been passed the caller's store holds nothing at all."""
    with pytest.raises(KeyboardInterrupt):
        builds.build(
            "build_targets:linear", store=tmp_path / "store", progress=_interrupting("verify")
        )
    assert not (tmp_path / "store").exists()


def _interrupting(word: str) -> Callable[[str], None]:
    def progress(step: str) -> None:
        if step.startswith(word):
            raise KeyboardInterrupt

    return progress


def test_it_is_shown(linear: tuple[Built, Path]) -> None:
    """`show` gives the proof that the build has written."""
    built, store = linear
    (bundle,) = show("linear", store=store)
    assert bundle.proof is not None
    assert bundle.proof.verified == built.verified
