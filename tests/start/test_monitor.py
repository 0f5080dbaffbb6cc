"""The monitor: a service that meets shapes it was not started with, and what is told of it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc.core.address import Address
from cachesvc.core.compiles import Compile
from cachesvc.core.errors import StoreError, UsageError
from cachesvc.core.report import CallReport, Counts, Report
from cachesvc.repository.publish import Publication
from cachesvc.runtime import compiles as runtime_compiles
from cachesvc.runtime import model as runtime_model
from cachesvc.start import supplement
from cachesvc.start.monitor import Monitor, monitor
from cachesvc.start.publishing import Pushed
from cachesvc.start.settings import open_repository

from .conftest import Starts

pytestmark = pytest.mark.xdist_group("start")

APP = """
import threading

import torch


def serve(model, *shape):
    with torch.no_grad():
        return model(torch.ones(*shape))


def beside(model, *shape):
    thread = threading.Thread(target=serve, args=(model, *shape), name="beside")
    thread.start()
    thread.join()


def broken(graph, _):
    raise ZeroDivisionError("nothing to divide")
"""

TOOLS = """
sys.path.insert(0, given["folder"])
import app, signal
from cachesvc.runtime.model import model_components

def called(size=2):
    # The functions of Python that a call of a known kind runs through.
    names = []
    def note(frame, event, _):
        if event == "call":
            names.append([os.path.basename(frame.f_code.co_filename), frame.f_code.co_name])
    sys.setprofile(note)
    try:
        app.serve(model, size, 4)
    finally:
        sys.setprofile(None)
    return names

model = torch.compile(Plain(), dynamic=False)
digest = model_components(model).digest
"""

SERVICE = (
    TOOLS
    + """
early = cachesvc.monitor()
report = start(model, [ones(2, 4)])
result = {"early": early.to_json(), "watching": early.is_watching}
early.stop()
app.serve(model, 2, 4)
result["path before"] = called()

told, done = [], []
def on_compile(compiled):
    told.append([compiled.call, compiled.outcome])
    if len(told) == 2:
        raise KeyError("x")

watching = cachesvc.monitor(
    report, model=model, on_compile=on_compile, publish=True, store=given["store"], label="served",
    settle=0,
)
result["path while watched"] = called()
app.serve(model, 3, 4)
assert watching.publishing.wait(120)
result["published"] = watching.publishing.state()
app.beside(model, 4, 4)
for shape in (2, 3, 4):
    app.serve(model, shape, 4)
result["same digest"] = model_components(model).digest == digest
with cachesvc.monitor() as second:
    app.serve(model, 5, 4)
result["second"] = second.to_json()

# A fork while another thread holds what the monitor needs to take a compile.
with watching._lock:
    child = os.fork()
if child == 0:
    signal.alarm(100)
    before = watching.number
    app.serve(model, 7, 4)
    watching.stop()
    good = watching.number == before + 1 and told[-1] == ["(float32[7, 4])", "compiled"]
    os._exit(0 if good else 1)
result["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

try:
    torch.compile(square, backend=app.broken)(ones(2, 2))
except Exception as error:
    result["raised"] = type(error).__name__
watching.stop()
result["stopped"] = watching.is_watching
app.serve(model, 8, 4)
result["text"] = str(watching)
result["watched"] = watching.to_json()
result["told"] = told
watching.start()
torch._dynamo.config.recompile_limit = 5
app.serve(model, 9, 4)
watching.stop()
result["again"] = watching.compiles[-1].to_json()
"""
)

NEXT = (
    TOOLS
    + """
result = {"report": shown(start(model, calls=[[ones(n, 4)] for n in (2, 4, 5, 3)]))}
app.serve(model, 3, 4)
result["path"] = called(3)
"""
)

LATE = (
    TOOLS
    + """
report = start(model, [ones(2, 4)])
with cachesvc.monitor(report) as watching:
    app.serve(model, 3, 4)
    app.serve(model, 3, 4)
    path = called(3)
with cachesvc.monitor(report) as other:
    torch.compile(lambda x: x + 1, backend="eager")(ones(2, 4))

parts = torch.nn.Sequential(torch.nn.Linear(6, 4), Plain())
parts[1].compile(backend="eager", dynamic=False)
with cachesvc.monitor(start(parts, [ones(2, 6)])) as partly:
    parts(ones(2, 6))  # with gradients, so that it compiles once more
    app.serve(parts, 3, 6)
result = [report.verdict, watching.to_json(), path, other.to_json(), partly.to_json()]
"""
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("service")
    (made / "app.py").write_text(APP)
    return made


@pytest.fixture(scope="session")
def service(starts: Starts, folder: Path) -> Any:
    """What a service found that was started with one shape and met several others."""
    return starts.run(
        SERVICE, store=folder / "store", label="served", given={"folder": str(folder)}
    )


@pytest.fixture(scope="session")
def following(starts: Starts, folder: Path, service: Any) -> Any:
    """A start of the same model after that service, without a monitor."""
    assert service
    return starts.run(NEXT, store=folder / "store", label="served", given={"folder": str(folder)})


@pytest.fixture(scope="session")
def late(starts: Starts, folder: Path, service: Any) -> Any:
    """A start with one shape that meets another which the bundle covers: its verdict, what a
    monitor told, and the functions that such a call runs through; what monitors told of another
    function, and of a model of which a part is compiled."""
    assert service
    return starts.run(LATE, store=folder / "store", label="served", given={"folder": str(folder)})


def test_calls_of_the_start_are_not_told(service: Any) -> None:
    """A monitor may be there before it: the start has a report of its own."""
    assert service["early"]["number"] == 0
    assert service["watching"] is True


def test_compiles_after_the_start(service: Any) -> None:
    """Each with its call, its caller, the guard that failed, and that the start had no such
    call."""
    first, beside, *_ = service["watched"]["compiles"]
    assert first["kind"] == "recompile"
    assert first["outcome"] == "compiled"
    assert first["call"] == "(float32[3, 4])"
    assert first["caller"] == "app.py:9 in serve"
    assert "expected 2, actual 3" in first["reason"]
    assert first["covered"] is False
    assert first["counts"]["graph_misses"] == 1
    assert first["function"].startswith("tiny_models.py:")
    assert (first["thread"], beside["thread"]) == ("MainThread", "beside")
    assert beside["call"] == "(float32[4, 4])"


def test_all_are_counted(service: Any) -> None:
    """By outcome, in text and JSON; a compile that fails, too, and nothing after the stop."""
    watched = service["watched"]
    assert watched["outcomes"] == {"compiled": 3, "failed": 1}
    assert watched["number"] == 4
    assert watched["counts"]["graph_misses"] == 3
    assert service["raised"] == "BackendCompilerFailed"
    assert "nothing to divide" in watched["compiles"][-1]["failure"]
    assert service["text"].startswith("4 compiles in ")
    assert (
        "(float32[4, 4]) at app.py:9 in serve, a call that the start was not given"
        in (service["text"])
    )
    assert service["stopped"] is watched["watching"] is False


def test_the_callback(service: Any) -> None:
    """It is told of each, in order; what it raises is a note, and it is told of the next."""
    shapes = [[f"(float32[{n}, 4])", "compiled"] for n in (3, 4, 5)]
    assert service["told"][:3] == shapes
    assert service["told"][3] == ["(float32[2, 2])", "failed"]
    assert service["watched"]["notes"] == ["on_compile raised KeyError: 'x'"]


def test_several_monitors(service: Any) -> None:
    """Each counts by itself."""
    assert service["second"]["number"] == 1
    (told,) = service["second"]["compiles"]
    assert told["call"] == "(float32[5, 4])"
    assert told["covered"] is None  # nobody said what the start was given


def test_a_fork(service: Any) -> None:
    """It counts its own compiles and tells its own callback, whatever its parent held."""
    assert service["child"] == 0


def test_started_again(service: Any) -> None:
    """It goes on counting; past the recompile limit a call is eager, and told so."""
    assert service["again"]["call"] == "(float32[9, 4])"
    assert service["again"]["outcome"] == "eager"
    assert service["again"]["limit"] == 5


def test_additions_are_published(service: Any, following: Any, folder: Path) -> None:
    """Beside the service and at the stop: the next start finds every shape, and covers them."""
    assert service["published"].startswith("segment ")
    assert service["watched"]["published"].startswith("segment ")
    assert following["report"]["verdict"] == "warm"
    assert [call["covered"] for call in following["report"]["calls"]] == [True] * 4
    (bundle,) = open_repository(folder / "store", None).bundles("served")
    assert bundle.address.model != "any"


def test_what_compiles_is_not_changed_by_a_monitor(service: Any, following: Any, late: Any) -> None:
    """A call of a known kind runs through the same functions before a monitor and under it, and if
    it was compiled under one or not; digest and keys are the same."""
    assert service["path before"] == service["path while watched"]
    assert late[2] == following["path"]
    assert ["app.py", "serve"] in following["path"]
    assert service["same digest"] is True


def test_a_hit_is_told_as_one(late: Any) -> None:
    """A call of another kind that the bundle covers is traced, and nothing is compiled."""
    verdict, watched, *_ = late
    assert verdict == "warm"
    assert watched["outcomes"] == {"hit": 1}
    assert watched["counts"]["graph_hits"] == 1
    assert watched["published"] is None


def test_only_calls_of_what_was_started_are_compared(late: Any) -> None:
    """With those of the start, whichever part of the model compiles, and without naming the model
    again; of another function nobody knows, though its call looks the same."""
    *_, watched, _, other, partly = late
    assert [told["covered"] for told in watched["compiles"]] == [False]
    assert [(told["call"], told["covered"]) for told in other["compiles"]] == [
        ("(float32[2, 4])", None)
    ]
    assert [(told["call"], told["covered"]) for told in partly["compiles"]] == [
        ("(float32[2, 6])", True),
        ("(float32[3, 6])", False),
    ]


MADE = Compile("recompile", "app.py:1 in f", call="(int)", counts=Counts(graph_misses=1))


ASKED = frozenset({1})
NOTHING_ADDED = Publication(Address("m", "any", "0" * 64), None)


class Model:
    pass


def report(*signatures: str, read_model: Callable[[], object] = lambda: None) -> Report:
    calls = tuple(CallReport(text, 1.0, Counts()) for text in signatures)
    return Report("m", Counts, calls=calls, read_model=read_model)


@pytest.mark.parametrize(
    ("signatures", "covered"),
    [(("(int)",), True), (("(str)",), False), (("call train",), None), ((), None)],
)
def test_covered(signatures: tuple[str, ...], covered: bool | None) -> None:
    """Whether the start was given such a call; not known where it was given callables alone, nor of
    a call of something else."""
    watching = Monitor(report(*signatures), None, None, 10)
    watching._receive(MADE, ASKED)
    watching._receive(MADE, frozenset())
    assert [made.covered for made in watching.compiles] == [covered, None]


def test_a_call_of_another_model() -> None:
    """It is told where it was asked for, and compared with the calls of the start only if it is of
    the model that was started, as long as that lives."""
    started, other = Model(), Model()
    watching = Monitor(report("(int)", read_model=weakref.ref(started)), [started, other], None, 10)
    assert watching._wanted() == {id(started), id(other)}
    watching._receive(MADE, frozenset({id(started)}))
    watching._receive(MADE, frozenset({id(other)}))
    assert [made.covered for made in watching.compiles] == [True, None]
    forgotten = Monitor(report("(int)", read_model=weakref.ref(started)), None, None, 10)
    assert forgotten._wanted() == {id(started)}
    del started, watching
    gc.collect()
    assert forgotten._wanted() == frozenset()


def test_the_last_are_kept() -> None:
    """Memory is bounded, and all are counted and told of."""
    watching = Monitor(None, None, None, 2)
    for number in range(3):
        watching._receive(replace(MADE, call=f"({number})"), frozenset())
    assert [made.call for made in watching.compiles] == ["(1)", "(2)"]
    assert watching.number == watching.counts.graph_misses == 3
    assert "the last 2:" in watching.summary()


def test_many_threads() -> None:
    """None of their compiles is lost, and a monitor that they all stop and start is left whole."""
    told: list[str] = []
    watching = monitor(on_compile=lambda compiled: told.append(compiled.call))

    def work() -> None:
        for _ in range(50):
            watching._receive(MADE, frozenset())
            watching.start()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watching.stop()
    assert len(told) == watching.number == 400
    assert not watching.is_watching


def test_a_callback_that_stops_the_monitor() -> None:
    """It does not wait for itself."""
    stopped = threading.Event()

    def on_compile(_: Compile) -> None:
        watching.stop()
        stopped.set()

    with monitor(on_compile=on_compile) as watching:
        watching._receive(MADE, frozenset())
        assert stopped.wait(60)
    assert not watching.is_watching


def test_a_callback_that_hangs() -> None:
    """A stop waits no longer than asked."""
    go = threading.Event()
    watching = monitor(on_compile=lambda _: go.wait(60))
    watching._receive(MADE, frozenset())
    watching.stop(patience=0.01)
    go.set()
    assert watching.number == 1


def test_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is watched and nothing published, and it says so."""
    monkeypatch.setenv("TCCACHE_DISABLE", "1")
    with cachesvc.monitor(publish=True, label="m") as watching:
        assert not watching.is_watching
    assert watching.publishing is None
    assert watching.notes == ("TCCACHE_DISABLE is set: nothing was done",)
    assert str(watching) == f"nothing was compiled\n  {watching.notes[0]}"


def test_arguments_that_cannot_be_meant() -> None:
    """They are the caller's mistake, and raise."""
    with pytest.raises(UsageError, match="give the report, the model or a label"):
        monitor(publish=True, store="/nowhere")
    with pytest.raises(UsageError, match="a b"):
        monitor(report("(int)"), publish=True, store="/nowhere", label="a b")
    with pytest.raises(UsageError, match="no model was given"):
        monitor(model=[])
    with pytest.raises(UsageError, match="0 or more"):
        monitor(settle=-1)


def test_trouble_with_a_model_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service starts, whatever its model raises when it is looked at; a report without a digest
    has a name."""

    def odd(*_: object, **__: object) -> None:
        raise RuntimeError("not now")

    monkeypatch.setattr(runtime_model, "read_model", odd)
    with monitor(model=Model(), publish=True, store=tmp_path) as watching:
        assert watching.is_watching
    assert watching.publishing is None
    (note,) = watching.notes
    assert note == "nothing is published: internal error, please report it: RuntimeError: not now"
    with monitor(report("(int)"), publish=True, store=tmp_path) as watching:
        assert watching.publishing is not None
    assert watching.notes == ()


def test_a_torch_that_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a note says so, and the program goes on."""

    def broken(_: object) -> None:
        raise ImportError("no wrapt")

    monkeypatch.setattr(runtime_compiles, "listen", broken)
    with monitor() as watching:
        assert not watching.is_watching
    assert "nothing is watched: " in watching.notes[0]
    assert "no wrapt" in watching.notes[0]


def test_where_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of the interpreter: what is not done is said, and nobody waits for it; where
    threads can be started again it is done."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    told: list[Compile] = []
    watching = monitor(on_compile=told.append, publish=True, label="m", store=tmp_path, settle=3600)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        watching._receive(MADE, ASKED)
        watching._receive(MADE, ASKED)
        watching.stop()
    why = "no thread can be started for it: can't start new thread"
    assert watching.publishing is not None
    assert watching.publishing.state() == f"failed: {why}"
    assert watching.notes == (
        "on_compile was not told of all: can't start new thread",
        f"nothing was published: {why}",
    )
    monkeypatch.setattr(supplement, "push_made", lambda *_, **__: Pushed(NOTHING_ADDED, 0, 0, 0))
    watching.start()
    watching._receive(MADE, frozenset())
    watching.stop()
    assert told == [MADE]
    assert watching.publishing.state() == "nothing to add"


def test_trouble_with_the_store_is_a_note() -> None:
    """Serving goes on, and nothing is published."""
    with monitor(publish=True, label="m", store="s3://bucket/prefix") as watching:
        assert watching.is_watching
    assert watching.publishing is None
    assert "nothing is published: " in watching.notes[0]
    with monitor(report("(int)"), publish=True, label="m") as watching:
        pass
    assert "no store was given" in watching.notes[0]


def test_a_failed_publication_is_tried_again_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its trouble is a note, each kind once."""
    tries: list[dict[str, Any]] = []

    def push_made(*_: object, **given: Any) -> None:
        tries.append(given)
        raise StoreError("the store is away")

    monkeypatch.setattr(supplement, "push_made", push_made)
    watching = monitor(publish=True, label="m", store=tmp_path, settle=0)
    watching._receive(MADE, ASKED)
    watching._receive(Compile("first compile", "f", failure="E", call="(bad)"), ASKED)
    assert watching.publishing is not None
    assert watching.publishing.wait(60)
    assert watching.publishing.state() == "failed: the store is away"
    watching.stop()
    assert [list(given["calls"]) for given in tries] == [["(int)"], ["(int)"]]
    assert watching.notes == ("nothing was published: the store is away",)


ENDING = """
model = torch.compile(Plain(), dynamic=False)
cachesvc.monitor(model=model, publish=True, store=given["store"], settle=3600)
with torch.no_grad():
    model(ones(2, 4))
"""


@pytest.mark.slow
def test_the_end_of_a_process_publishes(starts: Starts, tmp_path: Path) -> None:
    """What had not settled yet, of a process without a start; the next start is warm."""
    starts.run(ENDING, store=tmp_path, own=True)
    (bundle,) = open_repository(tmp_path, None).bundles()
    assert bundle.address.name == "Plain"
    found = starts.run(
        "result = shown(start(torch.compile(Plain(), dynamic=False), [ones(2, 4)]))",
        store=tmp_path,
    )
    assert found["verdict"] == "warm"
    assert found["calls"][0]["covered"] is True


BY_NAME = """
with cachesvc.monitor(publish=True, label="named", store=given["store"], settle=3600) as watching:
    with torch.no_grad():
        torch.compile(Plain())(ones())
result = watching.to_json()
"""


@pytest.mark.slow
def test_publication_under_a_name_alone(starts: Starts, tmp_path: Path) -> None:
    """Directories, as `tccache run` publishes them: any model of the name finds them."""
    watched = starts.run(BY_NAME, store=tmp_path)
    assert watched["published"].startswith("segment ")
    (bundle,) = open_repository(tmp_path, None).bundles("named")
    assert bundle.address.model == "any"
    found = starts.run(
        "result = shown(start(torch.compile(Plain()), [ones()]))", store=tmp_path, label="named"
    )
    assert (found["verdict"], found["tier"]) == ("warm", "directories")


@pytest.mark.slow
def test_a_monitor_does_not_import_the_compiler(tmp_path: Path) -> None:
    """It waits until the program does."""
    code = (
        "import sys, torch, cachesvc\n"
        "cachesvc.monitor().stop()\n"
        "print([name in sys.modules for name in ('torch._dynamo', 'torch._inductor')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[False, False]\n"


def test_the_last_segment_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a look that found nothing more: what was published was published."""
    results = [
        Pushed(Publication(NOTHING_ADDED.address, "5" * 64), 1, 1, 1),
        Pushed(NOTHING_ADDED, 0, 0, 0),
    ]
    monkeypatch.setattr(supplement, "push_made", lambda *_, **__: results.pop(0))
    watching = monitor(publish=True, label="m", store=tmp_path, settle=0)
    for _ in range(2):
        watching._receive(MADE, ASKED)
        assert watching.publishing is not None
        assert watching.publishing.wait(60)
    watching.stop()
    assert not results
    assert watching.publishing.state() == "segment 555555555555"
