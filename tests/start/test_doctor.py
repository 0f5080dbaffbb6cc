"""doctor: real targets with one disease each, and machines that are made up."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc import Diagnosis, Finding, TccacheError, UsageError, doctor
from cachesvc.core.incident import Incident
from cachesvc.core.report import Counts, Report
from cachesvc.local import fingerprint, health, mounts
from cachesvc.local import live as live_module
from cachesvc.local.live import INDUCTOR, TRITON, live_directory
from cachesvc.local.places import RECORDS
from cachesvc.start import checkup, process
from cachesvc.start.program import Ended

TARGETS = Path(__file__).parent / "targets"

# torch reads where its trace goes when it is imported, which the fork has behind it.
FORK = """
import importlib, os, sys
sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
from torch._logging import _internal
_internal.trace_log.handlers.clear()
_internal.LOG_TRACE_HANDLER = None
_internal._init_logs()
importlib.import_module(given["program"]).main(given["spec"], given["result"])
"""

Examine = Callable[..., Diagnosis]


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing to be found on it, whatever this one is like."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(mounts, "_mountinfo", lambda: "1 1 0:1 / / rw - ext4 x rw")
    monkeypatch.setattr(health, "NEEDED_BYTES", 0)
    monkeypatch.setattr(health, "NEEDED_INODES", 0)
    monkeypatch.setattr(checkup, "has_compiler", lambda: True)
    monkeypatch.setattr(checkup, "python_headers", lambda: Path("/usr/include"))
    live_module._fresh_home.cache_clear()


def only(found: Diagnosis) -> Finding:
    (finding,) = found.findings
    return finding


@pytest.mark.usefixtures("clean")
class TestMachine:
    """The part without a target, which imports no torch."""

    def test_healthy(self, tmp_path: Path) -> None:
        """One line, with the torch and the live directory; nothing of the user's is touched."""
        found = doctor()
        live = tmp_path / "home" / ".cache" / "tccache" / "live"
        assert found.healthy
        assert found.findings == ()
        assert str(found).startswith("healthy: this machine, torch ")
        assert str(found).count("\n") == 0
        assert f"live directory {live}/" in str(found)

    def test_facts(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """What was looked at, as JSON."""
        monkeypatch.setenv(TRITON, str(tmp_path / "triton"))
        machine: Any = doctor().facts["machine"]
        json.dumps(machine)
        places = {item["chosen_by"]: item["path"] for item in machine["directories"]}
        assert places[TRITON] == str(tmp_path / "triton")
        assert places["the temporary directory"] == str(tmp_path)
        assert "the live directory" in places
        assert machine["set_aside"] == machine["other_caches"] == []
        assert machine["cpp_compiler"] is True

    @pytest.mark.parametrize("variable", ["TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TCCACHE_DISABLE"])
    def test_a_flag(self, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        """A variable that switches everything off."""
        monkeypatch.setenv(variable, "1")
        finding = only(doctor())
        assert (finding.kind, finding.severity) == ("flag", "disease")
        assert (finding.where, finding.cure) == (f"{variable}=1", f"unset {variable}")

    @pytest.mark.parametrize("variable", ["TCCACHE_HOME", INDUCTOR, TRITON])
    def test_a_full_disk(
        self, mount: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        """In the user's directory as in ours."""
        monkeypatch.setattr(health, "NEEDED_BYTES", 1_000_000)
        folder = mount("size=512k")
        monkeypatch.setenv(variable, str(folder / "cache"))
        finding = only(doctor())
        assert (finding.kind, finding.where) == ("space", f"{variable}={folder / 'cache'}")

    @pytest.mark.parametrize("variable", ["TCCACHE_HOME", INDUCTOR])
    def test_noexec(
        self, mount: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        """Named once, though the live directory passes it over too."""
        folder = mount("noexec,mode=755")
        monkeypatch.setenv(variable, str(folder))
        finding = only(doctor())
        assert (finding.kind, finding.severity) == ("noexec", "disease")
        assert finding.where == f"{variable}={folder}"

    @pytest.mark.parametrize("variable", ["TCCACHE_HOME", INDUCTOR])
    def test_nfs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        """The kernel's table says so of what the user chose: it is used, and it is a disease."""
        self._mounted(monkeypatch, tmp_path / "net")
        monkeypatch.setenv(variable, str(tmp_path / "net"))
        finding = only(doctor())
        assert (finding.kind, finding.severity) == ("network file system", "disease")
        assert "nfs4" in finding.what

    def test_a_home_on_nfs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody chose it, and it is passed over for a local disk: only a hint."""
        self._mounted(monkeypatch, tmp_path / "home")
        finding = only(doctor())
        assert (finding.kind, finding.severity) == ("passed over", "hint")
        assert "nfs4" in finding.what

    @staticmethod
    def _mounted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        table = f"1 1 0:1 / / rw - ext4 x rw\n2 1 0:2 / {folder} rw - nfs4 filer:/x rw"
        monkeypatch.setattr(mounts, "_mountinfo", lambda: table)

    def test_no_directory_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither a home nor a temporary directory can be written."""
        (tmp_path / "file").touch()
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
        kinds = [(item.kind, item.severity) for item in doctor().findings]
        assert kinds == [("no live directory", "disease"), ("not writable", "hint")]

    def test_no_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The rest of the machine is looked at; a target cannot be, and is not started."""
        monkeypatch.setattr(fingerprint, "package_folder", lambda name: None)
        monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
        for found in (doctor(), doctor("no.module:at_all")):
            assert [item.kind for item in found.findings] == ["flag", "no torch"]
            assert "pip install torch" in found.findings[1].what

    def test_no_compilers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each by what needs it; a C compiler only where there is a Triton."""
        monkeypatch.setattr(checkup, "has_compiler", lambda: False)
        monkeypatch.setattr(checkup, "python_headers", lambda: None)
        monkeypatch.setattr(checkup, "package_folder", lambda name: None)
        monkeypatch.setenv("CC", "no-such-compiler")
        assert [f.kind for f in doctor().findings] == ["no C++ compiler", "no Python headers"]
        monkeypatch.setattr(checkup, "package_folder", lambda name: Path("/triton"))
        assert [f.kind for f in doctor().findings][2:] == ["no C compiler"]

    def test_units_set_aside(self, tmp_path: Path) -> None:
        """What failed here before is not used any more, so it is compiled at each start."""
        live = live_directory(cachesvc.read_environment().digest, os.environ)
        unit = {
            "unit": "inductor/ab/cabc",
            "reason": "file too short",
            "at": "2026-01-01T00:00:00Z",
        }
        units = [{**unit, "sha256s": ["0" * 64], "segment": None}]
        (live.root / RECORDS / "quarantine.json").write_text(
            json.dumps({"version": 1, "units": units})
        )
        finding = only(doctor())
        assert (finding.kind, finding.where) == ("set aside", "inductor/ab/cabc")
        assert "file too short" in finding.what

    def test_other_caches_are_hints(self, tmp_path: Path) -> None:
        """A machine with vLLM's cache on it is healthy, and told how that travels."""
        cache = tmp_path / "home" / ".cache" / "vllm"
        cache.mkdir(parents=True)
        (cache / "graph").write_bytes(b"0")
        found = doctor()
        assert found.healthy
        assert only(found).cure.startswith(f"it travels with --extra vllm={cache}")
        assert str(found).splitlines()[0].startswith("healthy: this machine")


@pytest.mark.parametrize("target", ["nothing", "demo:nothing", "demo:"])
def test_what_is_no_target(target: str) -> None:
    """The caller's mistake, told before anything is looked at."""
    with pytest.raises(UsageError):
        doctor(target)


@pytest.mark.usefixtures("clean")
def test_a_trace_that_cannot_be_kept(tmp_path: Path) -> None:
    """Said before anything is compiled."""
    (tmp_path / "file").touch()
    with pytest.raises(TccacheError, match="file/cold: Not a directory"):
        doctor("demo:gpt", trace=tmp_path / "file")


@pytest.fixture
def examine(fresh: Any, clean: None, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """A function that examines a target in forks of a process that has imported torch already."""

    def execute(
        program: str, spec: Path, result: Path, environ: Mapping[str, str], cwd: Path | None
    ) -> tuple[Ended, str]:
        given = {"program": program, "spec": spec, "result": result}
        env = {**dict.fromkeys(os.environ), **environ}
        fresh.run(FORK, given=given, env=env, cwd=cwd or TARGETS, prelude="")
        return Ended(0), ""

    monkeypatch.setattr(process, "execute", execute)
    monkeypatch.setenv("PYTHONPATH", str(TARGETS))
    monkeypatch.chdir(TARGETS)
    return lambda name, **options: doctor(f"sick_targets:{name}", **options)


def line_of(text: str) -> str:
    lines = (TARGETS / "sick_targets.py").read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"sick_targets.py:{number}"


def forward_of(name: str) -> str:
    lines = (TARGETS / "sick_targets.py").read_text().splitlines()
    begin = lines.index(next(line for line in lines if line.startswith(f"class {name}(")))
    number = next(n for n in range(begin, len(lines)) if "def forward" in lines[n])
    return f"sick_targets.py:{number + 1} in forward"


@pytest.mark.xdist_group("start")
def test_a_print(examine: Examine, tmp_path: Path) -> None:
    """The graph break, the line, the cure; and torch's own trace is kept, for tlparse."""
    found = examine("printing", trace=tmp_path / "traces")
    finding = only(found)
    assert (finding.kind, finding.severity, finding.count) == ("graph break", "disease", 1)
    assert finding.where == line_of("T201 - the disease")
    assert "`print`" in finding.what
    assert "torch.compiler.is_compiling()" in finding.cure
    assert str(found).startswith("sick_targets:printing: 1 disease\n")
    starts: Any = found.facts["starts"]
    assert starts["cold"]["counts"]["graph_misses"] == 1
    assert starts["local"]["verdict"] == "warm"
    assert found.facts["coverage"] == ["(float32[2, 4])"]
    for name in ("cold", "local"):
        (trace,) = (tmp_path / "traces" / name).iterdir()
        assert "dynamo_graph_break_reason" in trace.read_text()


@pytest.mark.xdist_group("start")
def test_healthy(examine: Examine) -> None:
    """One line, with what the second start found in the caches."""
    found = examine("healthy")
    assert found.findings == ()
    assert str(found).startswith(
        "healthy: sick_targets:healthy, 1 graph from cache at the second start, 0 compiled,"
    )
    assert str(found).endswith(", examined with (float32[2, 4])")
    assert "\n" not in str(found)


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_a_branch_on_data(examine: Examine) -> None:
    """The line of the branch, and what to write instead."""
    finding = only(examine("branching"))
    assert (finding.kind, finding.severity) == ("graph break", "disease")
    assert finding.where == line_of("if out.sum() > 0")
    assert "Data-dependent branching" in finding.what
    assert "torch.where" in finding.cure
    assert "torch.cond" in finding.cure


@pytest.mark.xdist_group("start")
def test_a_graph_break_that_is_not_allowed(examine: Examine) -> None:
    """With fullgraph=True the call raises, and that is the disease."""
    finding = only(examine("branching_whole"))
    assert (finding.kind, finding.severity) == ("graph break", "disease")
    assert finding.where == line_of("if out.sum() > 0")
    assert "fullgraph=True allows none: Data-dependent branching" in finding.what
    assert "torch.where" in finding.cure


@pytest.mark.xdist_group("start")
def test_a_shape_that_changes_at_every_call(examine: Examine) -> None:
    """The argument and its dimension, the sizes, and how near the limit is."""
    finding = only(examine("lengths"))
    assert (finding.kind, finding.severity) == ("recompile", "disease")
    assert finding.where == forward_of("Linear")
    assert "the size of x in dimension 0 changed (2, 3)" in finding.what
    assert "2 of 8 versions are used" in finding.what
    assert "torch._dynamo.mark_dynamic(x, 0)" in finding.cure
    assert "pad to a few lengths" in finding.cure


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_more_shapes_than_the_limit(examine: Examine) -> None:
    """That further inputs run uncompiled is the worst, and comes first."""
    limit, recompile = examine("too_many_lengths").findings
    assert (limit.kind, limit.severity, limit.where) == (
        *("recompile limit", "disease"),
        forward_of("Linear"),
    )
    assert "8 of 8 versions are used" in limit.what
    assert "runs as it was written" in limit.what
    assert "recompile_limit" in limit.cure
    assert (recompile.kind, recompile.count) == ("recompile", 7)
    assert "(2, 3, 4, 5, 6, 7, ...)" in recompile.what


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_a_custom_function(examine: Examine) -> None:
    """AOTAutograd keeps nothing of it: the consequence, and an operator instead."""
    finding = only(examine("custom_function"))
    assert (finding.kind, finding.severity) == ("bypass AOTAutograd", "disease")
    assert finding.where == forward_of("Custom")
    assert "autograd_function_apply; such a graph is traced at each start" in finding.what
    assert "register_autograd" in finding.cure


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_a_graph_that_is_another_one_in_each_process(examine: Examine) -> None:
    """The second start compiles it again, and the part of its key that differs is named."""
    finding = only(examine("volatile"))
    assert (finding.kind, finding.severity) == ("compiled again", "disease")
    assert finding.where == forward_of("Volatile")
    assert finding.what.endswith("its key differs from process to process in gm")


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_blocks_that_differ(examine: Examine) -> None:
    """Each of ten has a version of their kind's function: a model that works is healthy."""
    found = examine("regions")
    assert found.healthy
    hint = only(found)
    assert (hint.kind, hint.severity) == ("recompile", "hint")
    assert "10 versions serve the blocks of this kind, each with a limit of its own" in hint.what


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_a_forward_pass_that_is_another_one_in_each_process(examine: Examine) -> None:
    """It is compared with itself, not with the backward pass of the start before."""
    found = examine("volatile_training")
    (again,) = (item for item in found.findings if item.kind == "compiled again")
    assert again.what.endswith("its key differs from process to process in gm")


@pytest.mark.slow
@pytest.mark.xdist_group("start")
@pytest.mark.parametrize("target", ["printing", "branching", "lengths", "custom_function"])
def test_the_cure_works(examine: Examine, target: str) -> None:
    """What was named above, done: the target is healthy."""
    assert examine(f"{target}_cured").findings == ()


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_a_setting_of_the_program(examine: Examine) -> None:
    """What no variable tells: it is read where the calls were made."""
    finding = only(examine("caches_off"))
    assert finding.kind == "setting"
    assert "torch._inductor.config.fx_graph_cache = False" in finding.what


@pytest.mark.xdist_group("start")
def test_calls_that_reach_nothing_compiled(examine: Examine) -> None:
    """A callable that calls the model as it was written."""
    assert only(examine("never_compiled")).kind == "nothing compiled"


@pytest.mark.xdist_group("start")
def test_a_call_that_fails(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own words are told, and what was found of this machine."""
    monkeypatch.setattr(checkup, "python_headers", lambda: None)
    found = examine("failing")
    call, headers = found.findings
    assert (call.kind, call.severity, headers.kind) == (
        *("call failed", "disease"),
        "no Python headers",
    )
    assert call.what.startswith("the cold start of sick_targets:failing failed: an example call")
    assert "ValueError: Unsupported: a batch of 2" in call.what
    assert str(found.facts["failure"]).startswith(call.what[:200])
    assert found.facts["starts"] == {}


@pytest.mark.slow
@pytest.mark.xdist_group("start")
def test_more_shapes_than_are_allowed(examine: Examine) -> None:
    """With fullgraph=True a call raises, and is made again with nothing compiled."""
    limit = examine("too_many_lengths_whole").findings[0]
    assert (limit.kind, limit.severity, limit.where) == (
        *("recompile limit", "disease"),
        forward_of("Linear"),
    )
    assert "2 versions are used: for further inputs a call fails" in limit.what
    assert "fullgraph=True" in limit.what
    assert "mark_dynamic(x, 0)" in limit.cure


class TestNoStart:
    """Machines on which a target cannot be started: what was found of them is told."""

    @pytest.fixture(autouse=True)
    def _sick(self, clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkup, "has_compiler", lambda: False)

    def test_noexec(self, mount: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
        """A temporary directory that nothing can be loaded from."""
        monkeypatch.setattr(tempfile, "tempdir", str(mount("noexec")))
        call, *machine = doctor("demo:gpt").findings
        assert call.kind == "call failed"
        assert "set TMPDIR to a directory that can be run from" in call.what
        assert [item.kind for item in machine] == ["noexec", "no C++ compiler"]

    def test_full(self, mount: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
        """A temporary directory with no room for the starts' own."""
        folder = mount("nr_inodes=2")
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setattr(health, "NEEDED_INODES", 10)
        call, *machine = doctor("demo:gpt").findings
        assert "No space left on device" in call.what
        assert [item.kind for item in machine] == ["inodes", "no C++ compiler"]

    def test_no_temporary_directory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """None can be written: also the machine alone is told so."""

        def none() -> str:
            raise FileNotFoundError("No usable temporary directory found")

        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_get_default_tempdir", none)
        machine = ["no temporary directory", "no C++ compiler"]
        assert [item.kind for item in doctor().findings] == machine
        assert [item.kind for item in doctor("demo:gpt").findings] == ["call failed", *machine]

    def test_half_an_outcome(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The disk was full when the start wrote what it had come to."""

        def execute(program: str, spec: Path, result: Path, *_: Any) -> tuple[Ended, str]:
            result.write_text('{"report": ')
            return Ended(1), "OSError: [Errno 28] No space left on device"

        monkeypatch.setattr(process, "execute", execute)
        kinds = [item.kind for item in doctor("demo:gpt").findings]
        assert kinds == ["call failed", "no C++ compiler"]

    def test_only_the_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the first one has shown is told."""
        broken = (Incident("graph break", "it prints", "app.py:3 in forward"),)
        report = Report(
            "m", lambda: Counts(graphs=1, graph_misses=1), read_incidents=lambda: broken
        ).to_json()

        def execute(program: str, spec: Path, result: Path, *_: Any) -> tuple[Ended, str]:
            if json.loads(spec.read_text())["filled"]:
                return Ended.of(-9), ""
            outcome = {"report": report, "switched_off": [], "recompile_limit": 8}
            result.write_text(json.dumps(outcome))
            return Ended(0), ""

        monkeypatch.setattr(process, "execute", execute)
        found = doctor("demo:gpt")
        kinds = [item.kind for item in found.findings]
        assert kinds == ["call failed", "graph break", "no C++ compiler"]
        assert "SIGKILL" in found.findings[0].what
        starts: Any = found.facts["starts"]
        assert list(starts) == ["cold"]


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_a_flag_in_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches switched off for the target too: the variable is the one disease, not what follows."""
    monkeypatch.setenv("PYTHONPATH", str(TARGETS))
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    found = doctor("sick_targets:healthy")
    finding = only(found)
    assert (finding.kind, finding.where) == ("flag", "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1")
    starts: Any = found.facts["starts"]
    assert starts["local"]["counts"]["generated"] == 1


def test_the_machine_is_examined_without_torch(tmp_path: Path) -> None:
    """An answer in a blink, also in a container that never runs a model."""
    import subprocess

    code = "import sys, cachesvc; cachesvc.doctor(); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
