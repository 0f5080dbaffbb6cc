"""Compiles as they happen: kind, function, call, caller and reason, from real compiles."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from fresh_processes import FreshProcesses

from cachesvc.core.compiles import Compile
from cachesvc.runtime import compiles

pytestmark = pytest.mark.xdist_group("runtime")

APP = """
import threading

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x, *, twice=False):
        y = self.inner(x)
        print("here")
        return y * 2


class Blocks(torch.nn.Module):
    def __init__(self, backend):
        super().__init__()
        self.block = torch.compile(torch.nn.Linear(4, 4), backend=backend)

    def forward(self, x):
        return self.block(x[:, :4])


def serve(model, *args, **kwargs):
    return model(*args, **kwargs)


def train(step, x):
    loss = step(x)
    loss.backward()


def step(x):
    return (x * x).sum()


def scaled(x, factor):
    return x * factor


def raises(x):
    raise ValueError("no")


def whole(x):
    print("there")
    return x + 1


def broken(graph, _):
    raise ZeroDivisionError("nothing to divide")


def apart(function, *args):
    thread = threading.Thread(target=serve, args=(function, *args), name="beside")
    thread.start()
    thread.join()
"""

SCRIPT = """
import gc, weakref
sys.path.insert(0, given["folder"])
import app
from cachesvc.runtime import compiles
from cachesvc.runtime.calls import example_calls, timed

torch._dynamo.config.recompile_limit = 2
BACKEND = "aot_eager"
found, told, asked = {}, [], []

def receive(compiled, called):
    told.append(compiled.to_json())
    asked.append(called == {id(blocks)})

def during(name, work):
    told.clear()
    asked.clear()
    try:
        work()
        error = None
    except Exception as raised:
        error = type(raised).__name__
    found[name] = {"told": list(told), "asked": list(asked), "error": error}

troubles = []
blocks = app.Blocks(BACKEND)
listener = compiles.Listener(receive, troubles.append, lambda: frozenset([id(blocks)]))
compiles.listen(listener)

model = torch.compile(app.Model(), backend=BACKEND, dynamic=False)
with torch.no_grad():
    during("first", lambda: app.serve(model, ones(2, 4)))
    during("again", lambda: app.serve(model, ones(2, 4)))
    during("keyword", lambda: app.serve(model, x=ones(3, 4), twice=True))
    during("limit", lambda: app.serve(model, ones(5, 4)))
    during("past the limit", lambda: app.serve(model, ones(6, 4)))
    during("part", lambda: app.serve(blocks, ones(2, 6)))
scaled = torch.compile(app.scaled, backend=BACKEND, dynamic=False)
during("scaled", lambda: [app.serve(scaled, ones(3), factor) for factor in (2, 3)])
step = torch.compile(app.step, backend=BACKEND)
during("training", lambda: app.train(step, torch.ones(3, requires_grad=True)))
plain = torch.compile(lambda x: x + 1, backend=BACKEND)
during("thread", lambda: app.apart(plain, ones(3)))
during("raises", lambda: app.serve(torch.compile(app.raises, backend=BACKEND), ones(3)))
whole = torch.compile(app.whole, backend=BACKEND, fullgraph=True)
during("whole", lambda: app.serve(whole, ones(3)))
during("broken", lambda: app.serve(torch.compile(app.step, backend=app.broken), ones(3)))

linear = torch.compile(torch.nn.Linear(4, 4), backend=BACKEND)
during("torch's own", lambda: app.serve(linear, ones(2, 4)))

own = torch.compile(lambda x: x + 2, backend=BACKEND)
during("own", lambda: timed(example_calls(own, [ones(3)], None)[0]))

def kept():
    batch = ones(4, 3)
    reference = weakref.ref(batch)
    app.serve(torch.compile(lambda x: x + len(told), backend=BACKEND, dynamic=False), batch)
    del batch
    return reference

torch._dynamo.config.run_gc_after_compile = False
gc.collect()
gc.disable()
found["kept"] = kept()() is not None
gc.enable()

second = []
other = compiles.Listener(lambda compiled, _: second.append(compiled.call), troubles.append)
def fails(compiled, _):
    raise KeyError("x")
failing = compiles.Listener(fails, troubles.append)
compiles.listen(other)
three = torch.compile(lambda x: x + 3, backend=BACKEND)
during("two", lambda: app.serve(three, ones(3)))
compiles.listen(failing)
found["troubles"] = list(troubles)
four = torch.compile(lambda x: x + 4, backend=BACKEND)
during("failing", lambda: app.serve(four, ones(3)))
found["troubles of a listener"] = troubles[len(found["troubles"]):]
for each in (listener, other, failing):
    compiles.unlisten(each)
five = torch.compile(lambda x: x + 5, backend=BACKEND)
during("unlistened", lambda: app.serve(five, ones(3)))
found["second"] = second
found["untold"] = compiles.untold()
found["busy"] = compiles._here.busy
result = found
"""


@pytest.fixture(scope="module")
def found(fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a listener was told during each thing that a program did."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "app.py").write_text(APP)
    return fresh.run(SCRIPT, given={"folder": str(folder)})


def place(text: str, name: str) -> str:
    lines = APP.splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.strip() == text)
    return f"app.py:{number} in {name}"


SERVED = place("return model(*args, **kwargs)", "serve")


def test_a_first_compile(found: Any) -> None:
    """The function, the call that caused it, and who made that; after a graph break the rest is a
    compile of its own, for the same call, with what broke the graph."""
    first, rest = found["first"]["told"]
    assert (first["kind"], rest["kind"]) == ("first compile", "resume")
    assert first["function"] == place("def forward(self, x, *, twice=False):", "forward")
    assert rest["function"] == place('print("here")', "forward")
    assert first["call"] == rest["call"] == "(float32[2, 4])"
    assert first["caller"] == rest["caller"] == SERVED
    assert first["reason"] == ""
    assert "`print`" in rest["reason"]
    assert first["outcome"] == rest["outcome"] == "traced"
    assert first["counts"]["graphs"] == rest["counts"]["graphs"] == 1
    assert (first["entries"], first["limit"], first["thread"]) == (0, 2, "MainThread")
    assert first["seconds"] > 0
    assert rest["when"] > first["when"] > 1e9


def test_a_call_of_a_known_kind_compiles_nothing(found: Any) -> None:
    """And nothing is told."""
    assert found["again"]["told"] == []


def test_a_recompile(found: Any) -> None:
    """With the guard that failed, the call as it was made, and how many versions there were."""
    first, rest = found["keyword"]["told"]
    assert first["kind"] == rest["kind"] == "recompile"
    assert first["call"] == rest["call"] == "(x=float32[3, 4], twice=True)"
    assert "expected 2, actual 3" in first["reason"]
    assert first["entries"] == 1


def test_what_torch_writes_beside_a_guard(found: Any) -> None:
    """Padding and its source are left out of the reason."""
    _, again = found["scaled"]["told"]
    assert again["reason"] == "factor == 2"


def test_the_recompile_limit(found: Any) -> None:
    """The call that reaches it is told, with the guard: such calls are eager from then on, and
    nobody hears of those that follow."""
    (reached,) = found["limit"]["told"]
    assert (reached["outcome"], reached["kind"]) == ("eager", "recompile")
    assert "recompile limit exceeded" in reached["failure"]
    assert "expected 3, actual 5" in reached["reason"]
    assert (reached["entries"], reached["limit"]) == (2, 2)
    assert found["past the limit"]["told"] == []


def test_a_model_of_which_a_part_is_compiled(found: Any) -> None:
    """A listener that asks for the model is told its call, and not that of the part."""
    (part,) = found["part"]["told"]
    assert part["call"] == "(float32[2, 6])"
    assert part["caller"] == SERVED
    assert found["part"]["asked"] == [True]
    assert found["first"]["asked"] == [False, False]


def test_a_backward_pass(found: Any) -> None:
    """It is compiled when it is first needed, by the line that needs it."""
    forward, backward = found["training"]["told"]
    assert forward["kind"] == "first compile"
    assert forward["call"] == "(float32[3] grad)"
    assert forward["caller"] == place("loss = step(x)", "train")
    assert backward["kind"] == "backward"
    assert backward["function"] == forward["function"] == place("def step(x):", "step")
    assert backward["caller"] == place("loss.backward()", "train")


def test_a_thread(found: Any) -> None:
    """Any thread's compiles are told, with its name."""
    (told,) = found["thread"]["told"]
    assert told["thread"] == "beside"
    assert told["caller"] == SERVED


def test_a_function_that_raises_by_itself(found: Any) -> None:
    """Dynamo gives up and runs it as it was written; its error is its own."""
    (told,) = found["raises"]["told"]
    assert told["outcome"] == "eager"
    assert found["raises"]["error"] == "ValueError"


def test_compiles_that_fail(found: Any) -> None:
    """A graph that may not break, and a backend that raises: the caller sees the error, and so does
    the listener, with its cause."""
    (whole,) = found["whole"]["told"]
    assert whole["outcome"] == "failed"
    assert whole["failure"].startswith("Unsupported: ")
    assert found["whole"]["error"] == "Unsupported"
    (broken,) = found["broken"]["told"]
    assert broken["outcome"] == "failed"
    assert "ZeroDivisionError: nothing to divide" in broken["failure"]
    assert found["broken"]["error"] == "BackendCompilerFailed"


def test_a_module_of_torchs_own(found: Any) -> None:
    """Its class is told: the code that is compiled is torch's."""
    (told,) = found["torch's own"]["told"]
    assert told["function"].startswith("external_utils.py:")
    assert told["function"].endswith(" (Linear)")


def test_calls_of_a_start_are_its_own(found: Any) -> None:
    """They are in its report."""
    assert found["own"] == {"told": [], "asked": [], "error": None}


def test_nothing_is_kept_alive(found: Any) -> None:
    """The tensors of a call that compiled are let go when the call ends, without the collector."""
    assert found["kept"] is False


def test_several_listeners(found: Any) -> None:
    """Each is told; what one of them raises reaches the others' notes, and not the program."""
    assert len(found["two"]["told"]) == 1
    assert found["second"] == ["(float32[3])", "(float32[3])"]
    assert found["troubles"] == []
    assert found["failing"]["error"] is None
    assert len(found["failing"]["told"]) == 1
    assert all("KeyError" in text for text in found["troubles of a listener"])
    assert len(found["troubles of a listener"]) == 3


def test_listening_ends(found: Any) -> None:
    """A compile after it is told to nobody, and this torch shows every kind."""
    assert found["unlistened"] == {"told": [], "asked": [], "error": None}
    assert found["untold"] == []
    assert found["busy"] is False


NAMED = Compile("first compile", "f")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Compile]:
    """What one listener is told in this process."""
    made: list[Compile] = []
    listener = compiles.Listener(lambda compiled, _: made.append(compiled), pytest.fail)
    monkeypatch.setattr(compiles, "_ears", compiles._Ears())
    compiles._ears.listeners = (listener,)
    return made


def test_an_interrupt(told: list[Compile], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes while a compile is about to be watched is the program's, and the next compile
    in this thread is told."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(compiles, "Callers", interrupted)
        with pytest.raises(KeyboardInterrupt), compiles._Watched(lambda _: NAMED):
            pass
    with compiles._Watched(lambda _: NAMED):
        pass
    assert [made.function for made in told] == ["f"]


def test_an_autotuning(told: list[Compile]) -> None:
    """A kernel that is tuned when it is first run, by the call that ran it; a torch of which
    nothing is known here has the method under that name."""

    class CachingAutotuner:
        fn = types.SimpleNamespace(__name__="triton_red_fused_0")

        def autotune_to_one_config(self, *args: object) -> object:
            return args

    module: Any = types.ModuleType("heuristics")
    module.CachingAutotuner = CachingAutotuner
    compiles._watch_autotuning(module)
    assert CachingAutotuner().autotune_to_one_config(1, 2) == (1, 2)
    (made,) = told
    assert (made.kind, made.function, made.outcome) == (
        "autotuning",
        "triton_red_fused_0",
        "compiled",
    )
    assert made.counts.autotunings == 1
    assert made.caller.startswith("test_compiles.py:")
    assert made.caller.endswith(" in test_an_autotuning")


def test_what_torch_calls_back_for(told: list[Compile]) -> None:
    """CUDA graphs that are recorded are told; compiles of functions are, elsewhere; a torch that
    does not say what it is about to do compiles a backward pass."""
    from torch._dynamo.callback import CallbackTrigger, CompilationCallbackHandler

    class Handler(CompilationCallbackHandler):
        pass

    module: Any = types.ModuleType("callback")
    module.CompilationCallbackHandler = Handler
    compiles._watch_callbacks(module)
    handler = Handler()
    for trigger in (CallbackTrigger.CUDAGRAPH_RECORDING, CallbackTrigger.DYNAMO):
        with handler.install_callbacks(trigger, "7/3"):
            pass
    (made,) = told
    assert (made.kind, made.outcome, made.function) == ("recording", "recorded", "graph 7/3")

    class Older:
        def install_callbacks(self) -> Any:
            return torch.no_grad()

    module.CompilationCallbackHandler = Older
    compiles._watch_callbacks(module)
    with Older().install_callbacks():
        assert not torch.is_grad_enabled()
    assert told[1].kind == "backward"


def test_a_torch_without_these_places(told: list[Compile]) -> None:
    """Nothing raises, and what is not told is said."""
    empty = types.ModuleType("empty")
    for hook in (
        compiles._watch_frames,
        compiles._watch_callbacks,
        compiles._watch_autotuning,
    ):
        hook(empty)
    said = compiles.untold()
    assert len(said) == 3
    assert said[0] == (
        "compiles are not told here: this torch has no torch._dynamo.convert_frame._compile"
    )
    assert told == []


def test_a_torch_without_records(told: list[Compile], monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a recompile has no guard, and counts as a first compile; all else is told."""
    from torch._dynamo import utils

    monkeypatch.delattr(utils, "get_compilation_metrics")
    module: Any = types.ModuleType("convert_frame")
    module._compile = lambda *args, **kwargs: sys
    compiles._watch_frames(module)
    assert module._compile(test_a_first_compile.__code__, compile_id="0/1", skip=0) is sys
    (made,) = told
    assert (made.kind, made.reason, made.entries) == ("first compile", "", None)


TUNED = """
from cachesvc.runtime import compiles

told = []
compiles.listen(compiles.Listener(lambda compiled, _: told.append(compiled), told.append))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
with torch.no_grad():
    torch.compile(model, mode="max-autotune", dynamic=False)(ones(64, 64))
(made,) = told
result = [made.to_json(), str(made)]
"""


@pytest.mark.slow
def test_autotuning_in_a_compile(fresh: FreshProcesses) -> None:
    """It belongs to the compile that it is a part of; that no cache keeps such a graph is told."""
    made, text = fresh.run(TUNED, env={"TORCHINDUCTOR_FREEZING": "1"}, own=True)
    assert made["kind"] == "first compile"
    assert made["counts"]["autotunings"] == 1
    assert "1 autotunings; no cache keeps it" in text
