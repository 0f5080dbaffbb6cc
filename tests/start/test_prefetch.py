"""A prefetch: what it brings beside the program, and that the program never suffers from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc.start.prefetch import take

from .builds import TARGETS, Builds
from .conftest import FreshProcesses, Published, Starts

pytestmark = pytest.mark.xdist_group("start")

# `slow` gives a pack only once `go` is set; `begun` says that somebody waits for it.
STORES = """
import threading
from cachesvc.start.begun import Begun
from cachesvc.store.counting import Counting
from cachesvc.store.location import open_store
from cachesvc.store.wrapper import Wrapper

begun, go = threading.Event(), threading.Event()

class Slow(Wrapper):
    def _fetch(self, key, target):
        if key.endswith(".tar.zst"):
            begun.set()
            assert go.wait(60)
        return super()._fetch(key, target)

counted = Counting(open_store(given["store"]))
slow = Slow(counted)

def prefetch(store, **options):
    return cachesvc.prefetch(given["label"], store=store, **options)

def files():
    "What the compiler would find in the live directory."
    home = __import__("pathlib").Path(os.environ["TCCACHE_HOME"])
    return [str(f) for f in home.rglob("inductor/fxgraph/*/*/*") if "staging" not in str(f)]
"""


def test_a_start_goes_on_with_a_prefetch(starts: Starts, plain: Published) -> None:
    """It asks the store for nothing at all, finds everything in place, is warm, and tells what was
    hidden. A second start looks for itself."""
    report, again, requests, variables = starts.run(
        STORES
        + """
assert prefetch(counted).wait(60)
variables = [os.environ[n] for n in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
before = counted.calls.copy()
report = shown(start(torch.compile(Plain()), [ones()], store=counted))
after = counted.calls.copy()
again = shown(start(Plain(), store=counted))
result = report, again, [after == before, counted.calls == after], variables
""",
        store=plain.store,
        label="plain",
    )
    assert (report["verdict"], report["transfer"]["packs"]) == ("warm", 0)
    assert report["transfer"]["in_place"] > 0
    assert requests == [True, False]
    ledger = report["prefetched"]
    assert (ledger["packs"], ledger["trouble"]) == (1, "")
    assert ledger["bytes"] > 0
    assert list(ledger["stages"]) == ["pull", "seed"]
    for stage in ledger["stages"].values():
        assert stage["seconds"] == stage["hidden_s"] > 0 == stage["waited_s"]
    assert "\n  prefetched: pull " in report["text"]
    assert again["prefetched"] is None
    assert variables == [f"{report['live']}/inductor", f"{report['live']}/triton"]


def test_a_start_waits_for_a_prefetch_that_is_under_way(starts: Starts, plain: Published) -> None:
    """What is in hand is not pulled twice; what was waited for is told apart from what was
    hidden."""
    report, state = starts.run(
        STORES
        + """
prefetched = prefetch(slow, compiler=True)
assert begun.wait(60)
state = prefetched.state()
join = Begun.join
def joined(self, *args):
    go.set()
    join(self, *args)
Begun.join = joined
result = shown(start(torch.compile(Plain()), [ones()], store=slow)), state
""",
        store=plain.store,
        label="plain",
    )
    assert state == "under way"
    assert (report["verdict"], report["transfer"]["packs"]) == ("warm", 0)
    assert set(report["prefetched"]["stages"]) == {"pull", "seed", "compiler imports"}
    pull = report["prefetched"]["stages"]["pull"]
    assert pull["hidden_s"] > 0
    assert pull["waited_s"] > 0
    assert pull["hidden_s"] + pull["waited_s"] <= pull["seconds"] + 1e-6


def test_the_tier_of_a_prefetch(starts: Starts, plain: Published) -> None:
    """Nothing is brought that the start may not use."""
    report, left = starts.run(
        STORES
        + """
assert prefetch(counted, tier="megacache").wait(60)
left = files()
result = shown(start(Plain(), store=counted, tier="megacache")), left
""",
        store=plain.store,
        label="plain",
    )
    assert not left
    assert (report["tier"], report["transfer"]["packs"]) == ("megacache", 0)
    assert report["prefetched"]["packs"] == 1


def test_nothing_enters_the_live_directory_after_the_deadline(
    starts: Starts, plain: Published
) -> None:
    """Neither after that of the start that waited for the prefetch, nor after its own."""
    report, left, late, more = starts.run(
        STORES
        + """
prefetched = prefetch(slow)
assert begun.wait(60)
report = shown(start(Plain(), store=slow, deadline=0.05))
go.set()
assert prefetched.wait(60)
left = files()
late = prefetch(slow, deadline=1e-6)
assert late.wait(60)
result = report, left, late.state(), files()
""",
        store=plain.store,
        label="plain",
    )
    assert any("the deadline of 0.05 s passed" in note for note in report["notes"])
    assert not left
    assert "the deadline of 1e-06 s passed" in late
    assert not more


@pytest.fixture(scope="module")
def several(starts: Starts, plain: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two models under the name of the first; the other one was published last."""
    store = tmp_path_factory.mktemp("several") / "store"
    shutil.copytree(plain.store / "bundles" / "plain", store / "bundles" / "plain")
    shutil.copy(plain.store / "tccache.json", store)
    starts.run(
        "model = torch.compile(Other())\nresult = push(model, start(model, [ones()]))",
        store=store,
        label="plain",
    )
    return store


def test_several_models_under_a_name(starts: Starts, several: Path) -> None:
    """All are brought, each as its own start would bring it, and each start finds its receipt."""
    reports, read = starts.run(
        STORES
        + """
assert prefetch(counted).wait(60)
before = counted.calls["fetch"]
reports = [shown(start(model, store=counted)) for model in (Plain(), Other())]
result = reports, counted.calls["fetch"] - before
""",
        store=several,
        label="plain",
    )
    for report in reports:
        assert report["transfer"]["packs"] == 0
        assert report["transfer"]["in_place"] > 0
    assert reports[0]["prefetched"]["packs"] == 2
    assert read == 1, "the second start looks for the store's format, and reads no manifest"


def test_nothing_is_begun_that_the_start_does_not_need(starts: Starts, several: Path) -> None:
    """What is in hand is its own: that is waited for, and the older model's stays in the store."""
    report, left = starts.run(
        STORES
        + """
prefetched = prefetch(slow)
assert begun.wait(60)
Work = cachesvc.start.work.Work
wait = Work.wait
def waited(self, seconds=None):
    if self is prefetched._work:
        go.set()
    return wait(self, seconds)
Work.wait = waited
report = shown(start(Other(), store=slow))
assert prefetched.wait(60)
result = report, len(files())
""",
        store=several,
        label="plain",
    )
    assert report["transfer"]["packs"] == 0
    assert report["transfer"]["in_place"] > 0
    assert (left, report["prefetched"]["packs"]) == (1, 1)


def test_a_start_does_not_wait_for_another_models_bundle(starts: Starts, several: Path) -> None:
    """The newest is in hand: it is broken off, and the start brings its own."""
    report, left, patience = starts.run(
        STORES
        + """
prefetched = prefetch(slow)
assert begun.wait(60)
wait, patience = cachesvc.start.work.Work.wait, []
def waited(self, seconds=None):
    patience.append(seconds)
    return wait(self, seconds)
join = Begun.join
def joined(self, *args):
    cachesvc.start.work.Work.wait = waited
    join(self, *args)
    cachesvc.start.work.Work.wait = wait
    go.set()
Begun.join = joined
report = shown(start(Plain(), store=slow))
assert prefetched.wait(60)
result = report, len(files()), patience
""",
        store=several,
        label="plain",
    )
    assert patience == [0.0]
    assert report["transfer"]["packs"] == 1
    assert left == 1
    assert report["prefetched"]["trouble"] == ""
    assert (report["prefetched"]["packs"], report["prefetched"]["stages"]["pull"]["waited_s"]) == (
        0,
        pytest.approx(0, abs=0.5),
    )


# What needs neither torch nor a bundle.

PLAIN = """
import os, sys, threading, cachesvc
from cachesvc.start.work import Work
"""


def ran(script: str, home: Path, **variables: str) -> str:
    """What a fresh interpreter prints, which ends by itself and says nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", PLAIN + script],
        env={"PATH": os.environ["PATH"], "TCCACHE_HOME": str(home), "HOME": str(home), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def named_bundle(folder: Path) -> Path:
    """A store with a bundle that was pushed under the name `name`."""
    (folder / "inductor").mkdir()
    (folder / "inductor" / "file").write_text("x")
    cachesvc.push("name", store=folder / "store", inductor_dir=folder / "inductor")
    return folder / "store"


def test_by_environment_variables_alone(tmp_path: Path) -> None:
    """A name is enough. Neither torch nor boto3 is imported, in this thread or beside, and the
    variables lead to what was brought."""
    script = """
before = set(sys.modules)
prefetched = cachesvc.prefetch("name")
heavy = {"torch", "boto3", "zstandard"}
assert not heavy & set(sys.modules) - before or prefetched.wait(60)
assert prefetched.wait(60)
assert not {"torch", "boto3"} & set(sys.modules)
print(prefetched.state())
print(open(os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/file").read())
"""
    store = named_bundle(tmp_path)
    state, brought = ran(script, tmp_path / "home", TCCACHE_STORE=str(store)).splitlines()
    assert state.startswith("prefetched: pull ")
    assert brought == "x"


def test_nothing_is_raised_for_store_and_cache(tmp_path: Path) -> None:
    """No store, no trust, a store of another format, one that cannot be: all are told."""
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "tccache.json").write_text('{"format": 2}')
    cases: dict[str, dict[str, str | None]] = {
        "no store was given": {},
        "say that you trust everyone": {"store": "s3://bucket/prefix"},
        "or the word `store`": {"store": str(tmp_path), "trust": "everyone"},
        "has format 2": {"store": str(tmp_path / "newer")},
        "almost a URL": {"store": "s3:/bucket"},
    }
    script = f"""
for options in {list(cases.values())!r}:
    prefetched = cachesvc.prefetch("name", **options)
    assert prefetched.wait(60)
    print(prefetched.state())
"""
    for told, state in zip(cases, ran(script, tmp_path / "home").splitlines(), strict=True):
        assert told in state


@pytest.mark.parametrize(
    ("variable", "told"),
    [("TCCACHE_DEADLINE", "the deadline is 'later'"), ("TCCACHE_TIER", "the tier is 'later'")],
)
def test_an_unusable_variable_is_told(variable: str, told: str, tmp_path: Path) -> None:
    """It is no argument of the caller's."""
    script = """
prefetched = cachesvc.prefetch("name", store="/nowhere")
assert prefetched.wait(60)
print(prefetched.state())
"""
    assert told in ran(script, tmp_path, **{variable: "later"})


@pytest.mark.parametrize(
    ("label", "options", "told"),
    [
        ("a/b", {}, "'a/b' is not a bundle name"),
        ("0" * 64, {}, "reads as a model digest"),
        ("name", {"deadline": -1.0}, "the deadline is -1"),
        ("name", {"tier": "fastest"}, "the tier is 'fastest'"),
    ],
)
def test_arguments_that_cannot_be(label: str, options: dict[str, Any], told: str) -> None:
    """These are the caller's mistake, and nothing is begun."""
    threads = threading.active_count()
    with pytest.raises(cachesvc.UsageError, match=told):
        cachesvc.prefetch(label, **options)
    assert threading.active_count() == threads


def test_switched_off(tmp_path: Path) -> None:
    """No thread, no file, no variable, and no import of the compiler either."""
    script = """
before = dict(os.environ)
prefetched = cachesvc.prefetch("name", store="/nowhere", compiler=True)
print(threading.active_count(), dict(os.environ) == before, prefetched.wait())
print(prefetched.state())
"""
    told = ran(script, tmp_path / "home", TCCACHE_DISABLE="1").splitlines()
    assert told == ["1 True True", "TCCACHE_DISABLE is set: nothing was done"]
    assert not (tmp_path / "home").exists()


def test_nobody_waits_for_an_import_of_torch(tmp_path: Path) -> None:
    """The compiler's imports come after the program's own of torch, which may never come."""
    script = """
prefetched = cachesvc.prefetch("name", compiler=True)
print(prefetched.wait(60), prefetched.state()[:11], "torch" in sys.modules)
"""
    assert ran(script, tmp_path, TCCACHE_STORE=str(tmp_path)) == "True prefetched: False"


def test_called_twice(tmp_path: Path) -> None:
    """The same arguments, however they are given, mean what was begun already."""
    script = """
one = cachesvc.prefetch("name", store=os.environ["TCCACHE_STORE"], trust="store")
os.environ["TCCACHE_TRUST"] = "store"
print(cachesvc.prefetch("name") is one, cachesvc.prefetch("other") is one)
"""
    assert ran(script, tmp_path, TCCACHE_STORE=str(tmp_path / "store")) == "True False"


HANGING = """
from cachesvc.store.directory import DirectoryStore
begun, go = threading.Event(), threading.Event()
class Hanging(DirectoryStore):
    def _fetch(self, key, target):
        begun.set()
        go.wait()
        return super()._fetch(key, target)
store = Hanging(sys.argv[1] if len(sys.argv) > 1 else "/nowhere")
prefetched = cachesvc.prefetch("name", store=store)
assert begun.wait(60)
"""


def test_the_end_of_the_program_does_not_wait(tmp_path: Path) -> None:
    """A store that hangs keeps no finished program alive."""
    assert ran(HANGING + "print(prefetched.wait(0.01), prefetched.state())", tmp_path) == (
        "False under way"
    )


def test_a_fork_has_no_part_in_it(tmp_path: Path) -> None:
    """It neither waits nor goes on with it, and may begin its own."""
    script = """
from cachesvc.start.prefetch import take
child = os.fork()
if child == 0:
    assert prefetched.wait(), "waits"
    assert prefetched.state() == "left behind in another process", prefetched.state()
    go.set()
    own = cachesvc.prefetch("name", store=store)
    assert own is not prefetched and own.wait(60) and own.state().startswith("prefetched")
    assert take("name", store, None) is own
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), take("name", store, None) is prefetched)
child = os.fork()
if child == 0:
    os._exit(take("name", store, None) is not None)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert ran(HANGING + script, tmp_path) == "0 True\n0"


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As at the end of the interpreter: that is what became of it, and nobody waits."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    prefetched = cachesvc.prefetch("name", store=tmp_path, compiler=True)
    assert prefetched.state() == "no thread can be started for it: can't start new thread"
    assert prefetched.wait()
    begun = take("name", tmp_path, None)
    assert begun is prefetched
    begun.join("any", 60)


# The compiler's imports.


@pytest.mark.slow
def test_the_compilers_imports_are_joined(starts: Starts, plain: Published) -> None:
    """They come after the program's own import of torch, and the start waits for them."""
    report, before, after = starts.run(
        """
prefetched = cachesvc.prefetch("plain", store=given["store"], compiler=True)
before = "torch" in sys.modules
import torch
report = cachesvc.warm_start(torch.nn.Linear(2, 2), store=given["store"], label="plain")
result = report.to_json(), before, "torch._inductor.compile_fx" in sys.modules
""",
        store=plain.store,
        own=True,
        prelude="import os, sys, cachesvc\n",
        label="plain",
    )
    assert (before, after) == (False, True)
    assert list(report["prefetched"]["stages"]) == ["pull", "seed", "compiler imports"]
    imports = report["prefetched"]["stages"]["compiler imports"]
    assert imports["seconds"] > 0
    assert imports["waited_s"] > 0


def test_a_program_that_ends_amid_the_imports(tmp_path: Path) -> None:
    """They break off before Python itself ends, and its exit code is its own."""
    script = """
import atexit
names = lambda: [thread.name for thread in threading.enumerate()]
atexit.register(lambda: print("tccache-imports" in names()))
cachesvc.prefetch("name", store="/nowhere", compiler=True)
import torch
while "torch._dynamo" not in sys.modules:
    threading.Event().wait(0.01)
print("tccache-imports" in names())
"""
    assert ran(script, tmp_path) == "True\nFalse"


@pytest.mark.slow
def test_functions_compiled_ahead_of_time(
    fresh: FreshProcesses, starts: Starts, tmp_path: Path
) -> None:
    """They are brought like all else, and a start that runs on them imports no compiler."""
    store = tmp_path / "store"
    built = Builds(fresh).build("build_targets:linear", store=store)
    assert built.aot_s, built.aot_reasons
    report, before, compiler = starts.run(
        """
prefetched = cachesvc.prefetch("linear", store=given["store"])
before = "torch" in sys.modules
sys.path.insert(0, given["targets"])
import torch, build_targets
workload = build_targets.linear()
assert prefetched.wait(60)
with torch.no_grad():
    report = cachesvc.warm_start(
        workload.model, calls=workload.calls, store=given["store"], label="linear"
    )
result = shown(report), before, "torch._inductor.compile_fx" in sys.modules
""",
        store=store,
        own=True,
        prelude="import os, sys, cachesvc\n",
        given={"targets": TARGETS},
    )
    assert (report["verdict"], report["tier"], report["transfer"]["packs"]) == ("warm", "aot", 0)
    assert report["prefetched"]["packs"] == 1
    assert (before, compiler) == (False, False)
