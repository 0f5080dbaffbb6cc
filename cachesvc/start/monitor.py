"""monitor: what a process compiles after its start, while it serves or trains.

Nothing here raises into the program, and nothing is done where nothing compiles: a call that runs
on compiled code takes the way that it would have taken.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cachesvc.core.compiles import Compile, Tally
from cachesvc.core.daemon_pool import DaemonPool
from cachesvc.core.digest import Json
from cachesvc.core.errors import TccacheError, UsageError, unexpected
from cachesvc.core.report import Counts, Publishing, Report
from cachesvc.start.access import Paths, TrustLike, access
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled
from cachesvc.start.supplement import Destination, Supplement, goal_of
from cachesvc.start.target import named_models

if TYPE_CHECKING:
    from cachesvc.runtime.compiles import Listener

SETTLE_S = 10.0
PATIENCE_S = 30.0
KEEP = 1000
_MOST_NOTES = 50
_SHOWN = 20
_TELLER = "tccache-monitor"

OnCompile = Callable[[Compile], object]


def monitor(
    report: Report | None = None,
    *,
    model: Any = None,
    on_compile: OnCompile | None = None,
    publish: bool = False,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    sign_with: Paths | None = None,
    label: str | None = None,
    salt: str | None = None,
    settle: float = SETTLE_S,
    keep: int = KEEP,
) -> Monitor:
    """Watches what this process compiles from now on, until `stop` or the end of a `with`.

    Every compile in every thread counts, and is told with the call that caused it; calls that a
    start makes are left to that start's report. `report` is that of a start: it says which calls of
    its model were covered. Where only parts of a model are compiled, the call told is that of the
    model in the report, or of `model` (several: a sequence, or a mapping by name). `on_compile` is
    given each `Compile` once it has ended, in a thread of its own: it delays nobody, and what it
    raises is a note. The last `keep` compiles are kept, and all are counted.

    With `publish` what was compiled or used is published beside the caller: when nothing was
    compiled for `settle` seconds, and at `stop` or the end of the process, which wait for it, 30 s
    at most. It goes under the model of the report, else under `model`, else under `label` or the
    name in the report alone; trust, sign_with, label and salt are as in `warm_start`, and so is the
    store, unless the report has one. What is published for calls of that model says that it covers
    them. Nothing is published because of a compile that failed.

    Trouble is a note, whatever it is. Raises UsageError for arguments that cannot be meant. Where
    TCCACHE_DISABLE is set, nothing is watched.
    """
    if settle < 0 or keep < 0:
        raise UsageError("settle is a number of seconds and keep a number of compiles: 0 or more")
    watching = Monitor(report, model, on_compile, keep)
    if publish and not is_disabled():
        watching._publish(
            lambda: Destination(
                goal_of(report, model, label, salt), report, store, access(trust, sign_with)
            ),
            settle,
        )
    return watching.start()


class Monitor:
    """The compiles of this process while it is watched; `monitor` makes one."""

    def __init__(
        self, report: Report | None, model: Any, on_compile: OnCompile | None, keep: int
    ) -> None:
        self._models = () if model is None else tuple(named_models(model).values())
        self._started = _nothing if report is None else report.read_model
        covered = report.coverage if report is not None else ()
        self._covered = frozenset(call for call in covered if call.startswith("("))
        self._on_compile = on_compile
        self._compiles: deque[Compile] = deque(maxlen=keep)
        self._tally = Tally()
        self._notes: dict[str, None] = {}
        self._listener: Listener | None = None
        self._supplement: Supplement | None = None
        self._renew()
        _monitors.add(self)

    def _renew(self) -> None:
        """Locks and threads are of one process: a fork of it has its own."""
        self._lock = threading.Lock()
        self._pool = DaemonPool(1, _TELLER, beside_only=True)
        self._last: Future[None] | None = None
        self._teller: int | None = None
        if self._supplement is not None:
            self._supplement.renew()

    def _publish(self, find: Callable[[], Destination], settle_s: float) -> None:
        """Publishes additions from now on. Raises UsageError where arguments name no place."""
        try:
            destination = find()
            destination.check()
            self._supplement = Supplement(destination, settle_s, self._note)
        except UsageError:
            raise
        except TccacheError as error:
            self._note(f"nothing is published: {error}")
        except Exception as error:  # a service must start, whatever the code of a model raises
            self._note(f"nothing is published: {unexpected(error)}")

    def start(self) -> Monitor:
        """Watches, also once more after a stop; harmless if it does. Trouble is a note."""
        if is_disabled():
            self._note(DISABLED)
            return self
        try:
            self._listen()
        except Exception as error:  # a service must start, whatever this torch does not have
            self._listener = None
            self._note(f"nothing is watched: {unexpected(error)}")
        return self

    def _listen(self) -> None:
        from cachesvc.runtime.compiles import Listener, listen

        listener = Listener(self._receive, self._note, self._wanted)
        if self._exchange(None, listener):
            if self._supplement is not None:
                self._supplement.renew()
            listen(listener)
            atexit.register(self.stop)

    def stop(self, patience: float = PATIENCE_S) -> None:
        """Watches no more. Waits until `on_compile` was told of all, and what was compiled is
        published, each at most `patience` seconds; not for itself if `on_compile` calls it."""
        listener = self._listener
        if listener is None or not self._exchange(listener, None):
            return
        from cachesvc.runtime.compiles import unlisten

        unlisten(listener)
        atexit.unregister(self.stop)
        if self._last is not None and threading.get_ident() != self._teller:
            wait([self._last], patience)
        if self._supplement is not None and not self._supplement.finish(patience):
            self._note("the publication was not finished: what was added may not be in the store")

    def _exchange(self, old: Listener | None, new: Listener | None) -> bool:
        """Whether this thread is the one that starts or stops it."""
        with self._lock:
            is_first = self._listener is old
            self._listener = new if is_first else self._listener
            return is_first

    def __enter__(self) -> Monitor:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def is_watching(self) -> bool:
        return self._listener is not None

    @property
    def compiles(self) -> tuple[Compile, ...]:
        """The last compiles, in the order in which they ended."""
        with self._lock:
            return tuple(self._compiles)

    @property
    def number(self) -> int:
        """How many compiles there were."""
        return self._tally.number

    @property
    def counts(self) -> Counts:
        """What the compiler counted in all of them."""
        return self._tally.counts

    @property
    def publishing(self) -> Publishing | None:
        """How the publication of additions goes; None where nothing is published."""
        return self._supplement

    @property
    def notes(self) -> tuple[str, ...]:
        """Trouble, and what this torch does not show."""
        with self._lock:
            own = tuple(self._notes)
        if self._listener is None and not self._tally.number:
            return own
        from cachesvc.runtime.compiles import untold

        return (*own, *untold())

    def _note(self, text: str) -> None:
        """Keeps a sentence about trouble, each once, the first ones."""
        with self._lock:
            if len(self._notes) < _MOST_NOTES:
                self._notes[text] = None

    def summary(self) -> str:
        """The numbers, the last compiles, what each outcome means, and trouble, a line each."""
        tally = self._tally
        shown = self.compiles[-_SHOWN:]
        lines = [str(tally)]
        if tally.number > len(shown):
            lines.append(f"  the last {len(shown)}:")
        lines += [f"  {compiled}" for compiled in shown]
        lines += [f"  {text}" for text in (*tally.meanings(), *self.notes)]
        if self._supplement is not None:
            lines.append(f"  publication: {self._supplement.state()}")
        return "\n".join(lines)

    __str__ = summary

    def to_json(self) -> dict[str, Json]:
        """All of it as plain JSON values; seconds are floats."""
        return {
            **self._tally.to_json(),
            "watching": self.is_watching,
            "compiles": [compiled.to_json() for compiled in self.compiles],
            "published": None if self._supplement is None else self._supplement.state(),
            "notes": list(self.notes),
        }

    def _told(self) -> tuple[Any, ...]:
        """The models whose calls are told: those that were given, else the one that was started."""
        started = self._started()
        return self._models or (() if started is None else (started,))

    def _wanted(self) -> frozenset[int]:
        """The ids under which they are called."""
        return frozenset().union(*map(_ids, self._told()))

    def _is_of_start(self, called: frozenset[int]) -> bool:
        """Whether a call is one of the model that was started; where nobody says which that is, of
        one that was given."""
        started = self._started()
        if not called or started is None:
            return bool(called)
        own = (_ids(each) for each in self._told() if _ids(each) & _ids(started))
        return any(called & ids for ids in own)

    def _receive(self, compiled: Compile, called: frozenset[int]) -> None:
        """Takes a compile in the thread that compiled, where nobody must wait."""
        is_of_start = self._is_of_start(called)
        if self._covered and is_of_start:
            compiled = replace(compiled, covered=compiled.call in self._covered)
        with self._lock:
            self._tally = self._tally.plus(compiled)
            self._compiles.append(compiled)
        if self._on_compile is not None:
            self._submit(self._on_compile, compiled)
        if self._supplement is not None and compiled.outcome in ("compiled", "hit"):
            self._supplement.add(compiled.call if is_of_start else "")

    def _submit(self, on_compile: OnCompile, compiled: Compile) -> None:
        try:
            self._last = self._pool.submit(self._tell, on_compile, compiled)
        except RuntimeError as error:  # no thread can be started: nobody must wait for this one
            self._pool = DaemonPool(1, _TELLER, beside_only=True)
            self._note(f"on_compile was not told of all: {error}")

    def _tell(self, on_compile: OnCompile, compiled: Compile) -> None:
        self._teller = threading.get_ident()
        try:
            on_compile(compiled)
        except BaseException as error:  # the program's own code, in this library's thread
            self._note(f"on_compile raised {type(error).__name__}: {error}")


def _nothing() -> None:
    """The model of no start."""


def _ids(model: Any) -> frozenset[int]:
    """Under which ids a model is called: its own, and that of what `torch.compile` was given."""
    from cachesvc.runtime.backend import original

    return frozenset((id(model), id(original(model))))


_monitors: weakref.WeakSet[Monitor] = weakref.WeakSet()


def _renew_all() -> None:
    for each in tuple(_monitors):
        each._renew()


os.register_at_fork(after_in_child=_renew_all)
