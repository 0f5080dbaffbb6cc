"""Dispatch: a function makes a call only where it is right; whatever else goes the old way."""

from __future__ import annotations

import copy
import errno
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from cachesvc.runtime.aot import dispatch as dispatching
from cachesvc.runtime.aot.boundary import boundaries
from cachesvc.runtime.aot.call_key import call_key
from cachesvc.runtime.aot.dispatch import MOST_READINGS, Dispatcher, Watched
from cachesvc.runtime.aot.function import DoesNotFit, PassedOn
from cachesvc.runtime.aot.ledger import Ledger
from cachesvc.runtime.aot.state import state_facts
from cachesvc.runtime.aot.tally import Tally
from cachesvc.runtime.model import read_model

ONE = torch.ones(2, 3)
SCALE = 2.0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))
        self.count = 0

    def forward(self, x: torch.Tensor, *, flag: bool = False) -> Any:
        self.count += 0
        return self.linear(x) * SCALE if flag else self.linear(x)


EMPTY = Ledger(compile("()", "<ledger>", "eval"), (), {})


class Fake:
    """A function that says that it was called."""

    def __init__(
        self,
        key: Any,
        ledger: Ledger = EMPTY,
        run: Callable[..., Any] = lambda *args, **kwargs: "served",
    ) -> None:
        self.stored = SimpleNamespace(unit="aot/g/k", call=key, state=state_facts())
        self.ledger, self.own = ledger, Model.forward
        self.is_checked = False
        self.looked = 0
        self._run = run

    def look_again(self) -> None:
        self.is_checked = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.is_checked:
            self.looked += 1
            if found := self.ledger.first_difference(self.own, args, kwargs):
                raise DoesNotFit(found)
            self.is_checked = True
        return self._run(*args, **kwargs)


@pytest.fixture
def tally(monkeypatch: pytest.MonkeyPatch) -> Tally:
    counts = Tally()
    monkeypatch.setattr(dispatching, "tally", counts)
    return counts


class Armed:
    """A model with one function, for a call with one tensor; the old way says `old`."""

    def __init__(self, **settings: Any) -> None:
        self.model: Any = Model().eval()
        self.failures: list[str] = []
        self.function: Any = Fake(call_key([ONE], {}), **settings)
        watched = Watched(self.model, "", read_model(self.model), {})
        place = boundaries(self.model)[0]
        failed = lambda function, error: self.failures.append(str(error))  # noqa: E731
        self.dispatcher = Dispatcher(place, watched, failed, lambda: None)
        self.dispatcher.add([self.function])
        self.dispatcher.__dict__["_compiled"] = lambda *args, **kwargs: "old"
        place.put(self.dispatcher)


def reasons(tally: Tally) -> Mapping[str, int]:
    return dict(tally.reasons)


def test_a_call_of_the_kind_is_served(tally: Tally, way: str) -> None:
    """Again and again, with other values; what is constant is looked up once."""
    armed = Armed()
    assert [armed.model(ONE), armed.model(ONE * 2)] == ["served", "served"]
    assert armed.function.looked == 1
    assert (tally.hits, tally.misses, tally.used["aot/g/k"]) == (2, 0, 2)


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "shape": (lambda m: m(torch.ones(3, 3)), dispatching.UNCOVERED),
    "keyword": (lambda m: m(x=ONE), dispatching.UNCOVERED),
    "flag": (lambda m: m(ONE, flag=True), dispatching.UNCOVERED),
    "unknown": (
        lambda m: m(ONE.as_subclass(type("Sub", (torch.Tensor,), {}))),
        dispatching.UNKNOWN,
    ),
    "own tensor": (lambda m: m(m.linear.weight), dispatching.UNKNOWN),
}


@pytest.mark.parametrize("name", CALLS)
def test_another_call_goes_the_old_way(tally: Tally, name: str) -> None:
    """And is counted, with the reason."""
    call, reason = CALLS[name]
    armed = Armed()
    assert call(armed.model) == "old"
    assert (tally.hits, reasons(tally)) == (0, {reason: 1})


def test_another_state_goes_the_old_way(tally: Tally) -> None:
    """No gradients, autocast."""
    armed = Armed()
    with torch.no_grad():
        assert armed.model(ONE) == "old"
    with torch.autocast("cpu", torch.bfloat16):
        assert armed.model(ONE) == "old"
    assert reasons(tally) == {dispatching.UNCOVERED: 2}


def test_a_changed_model_goes_the_old_way_until_it_is_as_it_was(tally: Tally, way: str) -> None:
    """It is read once for each change, and served again when its digest is the same again."""
    armed = Armed()
    assert armed.model(ONE) == "served"
    armed.model.train()
    assert [armed.model(ONE), armed.model(ONE)] == ["old", "old"]
    assert armed.dispatcher.watched.epoch == 1
    armed.model.eval()
    assert armed.model(ONE) == "served"
    assert armed.dispatcher.watched.epoch == 2
    assert armed.function.looked == 2


def test_other_parameters_of_the_same_kind_are_served(tally: Tally) -> None:
    """They are looked at again, since they are others."""
    armed = Armed()
    assert armed.model(ONE) == "served"
    armed.model.load_state_dict(Model().state_dict(), assign=True)
    assert armed.model(ONE) == "served"
    assert armed.function.looked == 2


def test_a_model_that_changes_at_each_call_is_not_looked_at_any_more(tally: Tally) -> None:
    """Reading it takes as long as many calls."""
    armed = Armed()
    for number in range(MOST_READINGS + 3):
        armed.model.more = number
        assert armed.model(ONE) == "old"
    assert armed.dispatcher.watched.epoch == MOST_READINGS
    assert reasons(tally)[dispatching.UNSTEADY] == 3


def ledger(text: str, *expected: Any) -> Ledger:
    return Ledger(compile(f"({text},)", "<ledger>", "eval"), expected, {}, (text,))


def test_a_constant_that_moves_is_looked_up_again(
    tally: Tally, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that no digest has read: it misfits, costs nothing while it stays so, and fits again."""
    armed = Armed(ledger=ledger("G['SCALE']", SCALE))
    assert armed.model(ONE) == "served"
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    armed.dispatcher.watched._expected = read_model(armed.model).components.digest
    assert [armed.model(ONE), armed.model(ONE)] == ["old", "old"]
    assert armed.function.looked == 2
    monkeypatch.undo()
    monkeypatch.setattr(dispatching, "tally", tally)


def test_what_the_model_writes_is_asked_at_each_call_once_it_never_rests(
    tally: Tally, way: str
) -> None:
    """A counter: the function is right for one value of it."""

    def run(module: Any, x: Any) -> str:
        module.count += 1
        return "served"

    armed = Armed(ledger=ledger("self.count", 0), run=run)
    assert [armed.model(ONE) for _ in range(3)] == ["served", "old", "old"]
    armed.model.count = 0
    assert armed.model(ONE) == "served"
    for _ in range(8):
        armed.model.count = 0
        assert armed.model(ONE) == "served"
    assert armed.model(ONE) == "old"


class Broken(Exception):
    pass


def failing(error: Exception) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        raise error

    return run


def test_a_function_that_fails_is_dropped(tally: Tally) -> None:
    """Once its call was made the old way."""
    armed = Armed(run=failing(Broken("no such kernel")))
    assert armed.model(ONE) == "old"
    assert armed.failures == ["no such kernel"]
    assert armed.model(ONE) == "old"
    assert reasons(tally) == {dispatching.FAILED: 1, dispatching.UNCOVERED: 1}


def test_a_call_that_nothing_can_make_blames_no_function(tally: Tally) -> None:
    """A bad request fails the old way, too: the next one is served."""
    armed = Armed(run=failing(IndexError("index out of range")))
    armed.dispatcher.__dict__["_compiled"] = failing(IndexError("as written"))
    with pytest.raises(IndexError, match="as written"):
        armed.model(ONE)
    assert armed.failures == []
    armed.function._run = lambda *args: "served"
    assert armed.model(ONE) == "served"


MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
]


@pytest.mark.parametrize("error", MEMORY, ids=lambda error: type(error).__name__)
def test_no_room_is_told_to_the_caller(tally: Tally, error: Exception) -> None:
    """It may want to go on with less; the function has no part in it."""
    armed = Armed(run=failing(error))
    with pytest.raises(type(error)):
        armed.model(ONE)
    assert armed.failures == []


def test_a_full_disk_is_no_fault_of_a_function(tally: Tally) -> None:
    """The call goes the old way, and the next one may be served."""
    armed = Armed(run=failing(OSError(errno.ENOSPC, "no space left")))
    assert armed.model(ONE) == "old"
    armed.function._run = lambda *args: "served"
    assert armed.model(ONE) == "served"
    assert armed.failures == []


def test_an_error_for_the_caller_is_passed_on(tally: Tally) -> None:
    """As it was raised: nothing is computed twice."""
    armed = Armed(run=failing(PassedOn(Broken("out of luck"))))
    with pytest.raises(Broken, match="out of luck"):
        armed.model(ONE)
    assert armed.failures == []


def test_a_model_that_changed_before_it_was_sealed_is_found(tally: Tally) -> None:
    """Between its reading and its functions lies the way to the store."""
    model = Model().eval()
    reading = read_model(model)
    model.linear.in_features = 9
    assert Watched(model, "", reading, {}).fits() == dispatching.CHANGED


@pytest.mark.parametrize("part", ["read_model", "Seal.is_whole"])
def test_what_cannot_be_looked_at_has_changed(
    tally: Tally, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The call goes the old way, and raises nothing that it would not raise without all this."""
    armed = Armed()
    monkeypatch.setattr(f"{dispatching.__name__}.{part}", failing(RuntimeError("in iteration")))
    armed.model.train()
    assert armed.model(ONE) == "old"
    assert reasons(tally) == {dispatching.CHANGED: 1}


def test_a_model_that_nobody_compiles_runs_as_written_inside_a_transform(tally: Tally) -> None:
    """torch's compiler may refuse there what torch itself does."""
    armed = Armed()
    armed.dispatcher.__dict__["_compiled"] = failing(Broken("compiled"))
    with torch.overrides.BaseTorchFunctionMode():
        assert isinstance(armed.model(ONE), torch.Tensor)
    assert reasons(tally) == {dispatching.INSIDE: 1}


def test_eager_models_are_called_as_written(tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the process wants them, as by `torch.compiler.set_stance`."""
    armed = Armed()
    stance = SimpleNamespace(stance="force_eager")
    compiler = SimpleNamespace(_stance=stance)
    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", compiler)
    assert isinstance(armed.model(ONE), torch.Tensor)
    stance.stance = "default"
    assert armed.model(ONE) == "served"
    assert (tally.hits, tally.misses) == (1, 0)


def test_a_model_goes_its_own_way_in_copies_and_pickles(tally: Tally) -> None:
    """Neither has a dispatcher; the state dict has no trace of it."""
    armed = Armed()
    again = copy.deepcopy(armed.model)
    thawed = pickle.loads(pickle.dumps(armed.model))
    for other in (again, thawed):
        assert isinstance(other(ONE), torch.Tensor)
        assert list(other.state_dict()) == list(armed.model.state_dict())
    assert armed.model(ONE) == "served"


def test_a_module_that_was_given_its_attributes_goes_its_own_way(tally: Tally) -> None:
    """As the replicas of DataParallel are: with parameters of their own, elsewhere."""
    armed = Armed()
    replica = Model.__new__(Model)
    replica.__dict__.update(armed.model.__dict__)
    assert isinstance(replica(ONE), torch.Tensor)
    assert armed.model(ONE) == "served"
    assert (tally.hits, tally.misses) == (1, 0)


def test_a_forked_child_has_locks_of_its_own(tally: Tally) -> None:
    """Whoever held them in the parent is not there."""
    armed = Armed()
    assert armed.dispatcher in dispatching._dispatchers
    threads = [threading.Thread(target=lock.acquire) for lock in locks(armed)]
    for thread in threads:
        thread.start()
        thread.join()
    dispatching._unlock_all()
    assert all(lock.acquire(blocking=False) for lock in locks(armed))


def locks(armed: Armed) -> list[Any]:
    return [armed.dispatcher._settling, armed.dispatcher.watched._lock]


def test_no_thread_is_served_after_a_change_that_it_could_see(tally: Tally) -> None:
    """Threads call while another flips the mode: a call that began after a flip, and ended before
    the next one, has gone the right way."""
    armed = Armed()
    wrong: list[str] = []
    flips = [0]
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            before = flips[0]
            output = armed.model(ONE)
            if before == flips[0] and before % 4 in (1, 3):
                expected = "old" if before % 4 == 1 else "served"
                if output == "served" and expected == "old":
                    wrong.append(output)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        armed.model.train()
        flips[0] += 1
        armed.dispatcher.watched._unsteady = 0
        for _ in range(3):
            armed.model(ONE)
        flips[0] += 1
        armed.model.eval()
        flips[0] += 1
        armed.dispatcher.watched._unsteady = 0
        armed.model(ONE)
        flips[0] += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
