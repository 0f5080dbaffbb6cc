"""Compiles as they happen, told to whoever listens: hooks where torch compiles, and nowhere else.

Nothing is put on a module, into a guard or into what was compiled, so a call that compiles nothing
takes the way that it would have taken. The hooks stay once they are in place, and do nothing while
nobody listens. What goes wrong in them is told to the listeners and never raised.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

import torch

from cachesvc.core.compiles import NOTHING, Compile
from cachesvc.core.errors import unexpected
from cachesvc.core.guard import guard_text
from cachesvc.core.report import Counts
from cachesvc.local.live import INDUCTOR, TRITON
from cachesvc.runtime.callers import Caller, Callers
from cachesvc.runtime.counters import Meter
from cachesvc.runtime.incidents import (
    compile_records,
    failed_guard,
    graph_breaks,
    headline,
    is_resumed,
    place_of,
)
from cachesvc.runtime.watch import wrap

_KINDS = {
    "LAZY_BACKWARD": "backward",
    "CUDAGRAPH_RECORDING": "recording",
    "TRITON_AUTOTUNING": "autotuning",
}
_SOFT = ("Unsupported", "UserError")
_PASSED_OVER = "SkipFrame"
_LIMIT = "recompile_limit"
_TORCHS_OWN = str(Path(torch.__file__).parent / "_dynamo" / "external_utils.py")
_MOST_REMEMBERED = 512


@dataclass(frozen=True, eq=False)
class Listener:
    """Who is told of compiles. Both functions are called in the thread that compiles, within
    torch's lock, so they must be quick.

    `models` gives the ids of the models whose calls are asked for. `receive` gets each compile, and
    which of these was called; `trouble` gets a sentence where something cannot be told.
    """

    receive: Callable[[Compile, frozenset[int]], None]
    trouble: Callable[[str], None]
    models: Callable[[], frozenset[int]] = frozenset


class _Here(threading.local):
    """Whether this thread is in a compile already: what is compiled within belongs to it."""

    busy: bool = False


class _Ears:
    """All listeners of this process, and what their compiles have in common."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.functions: dict[str, str] = {}
        self.breaks: dict[tuple[str, str], str] = {}
        self.untold: dict[str, None] = {}
        self.lock = threading.Lock()

    def unlock(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self.lock = threading.Lock()


_here = _Here()
_ears = _Ears()
os.register_at_fork(after_in_child=_ears.unlock)


def listen(listener: Listener) -> None:
    """Tells a listener of all compiles that begin from now on, in any thread."""
    _hook()
    with _ears.lock:
        _ears.listeners = (*_ears.listeners, listener)


def unlisten(listener: Listener) -> None:
    """Tells it no more."""
    with _ears.lock:
        _ears.listeners = tuple(each for each in _ears.listeners if each is not listener)


@functools.cache
def _hook() -> None:
    """Waits for torch's modules, so that listening imports nothing."""
    import wrapt

    for module, hook in (
        ("torch._dynamo.convert_frame", _watch_frames),
        ("torch._dynamo.callback", _watch_callbacks),
        ("torch._inductor.runtime.triton_heuristics", _watch_autotuning),
    ):
        wrapt.register_post_import_hook(hook, module)


def untold() -> tuple[str, ...]:
    """A sentence for each kind of compile that this torch does not show; empty before it is
    imported."""
    return tuple(_ears.untold)


def _untold(what: str, where: str) -> None:
    _ears.untold[f"{what} not told here: this torch has no {where}"] = None


@dataclass(frozen=True, slots=True)
class _Raised:
    """What a compile raised, as text: an error that is kept keeps the frames that it came from."""

    text: str = ""
    kinds: tuple[str, ...] = ()


def _text(error: BaseException) -> str:
    """What an error says in one line; one that only announces what caused it, that too."""
    try:
        first, _, rest = str(error).strip().partition("\n")
    except Exception:  # the text is made by the error's own code
        return "it has no text"
    return f"{first} {headline(rest)}" if first.endswith(":") else headline(str(error))


class _Watched:
    """A compile under way: `with` it around the work, whose result is put into `result`.

    `name` gives the compile as the work shows it at its end, or None where there was none.
    """

    def __init__(self, name: Callable[[_Watched], Compile | None]) -> None:
        self._name = name
        self._listeners: tuple[Listener, ...] = ()
        self._callers: tuple[tuple[Listener, Caller], ...] = ()
        self._meter: Meter | None = None
        self._when = self._started = 0.0
        self.result: Any = None
        self.raised = _Raised()

    def __enter__(self) -> _Watched:
        self._listeners = () if _here.busy else _ears.listeners
        if self._listeners:
            try:
                _here.busy = True
                self._safely(self._begin)
            except BaseException:  # an interrupt: nobody will call `__exit__`
                _here.busy = False
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._listeners:
            return
        _here.busy = False
        seconds = time.perf_counter() - self._started
        if error is not None:
            kinds = tuple(each.__name__ for each in type(error).__mro__)
            self.raised = _Raised(f"{kinds[0]}: {_text(error)}", kinds)
        self._safely(lambda: self._end(seconds))

    def _safely(self, work: Callable[[], None]) -> None:
        """Torch may look at each frame below a call, to compile it: not at these."""
        try:
            torch.compiler.disable(work)()
        except Exception as error:
            for listener in self._listeners:
                listener.trouble(unexpected(error))

    def _begin(self) -> None:
        self._when, self._started = time.time(), time.perf_counter()
        # The caller's frame: this one would keep itself alive, and the tensors of the call.
        callers = Callers(sys._getframe(1))
        if not callers.is_own:  # a call of a start is in that start's report
            self._callers = tuple((each, callers.of(each.models())) for each in self._listeners)
            self._meter = Meter(_triton())
        self._started = time.perf_counter()

    def _end(self, seconds: float) -> None:
        if self._meter is None:
            return
        named = self._name(self)
        if named is None:
            return
        counts = self._meter.read()
        made = replace(
            named,
            failure=self.raised.text,
            seconds=seconds,
            when=self._when,
            counts=counts if named.counts is NOTHING else named.counts,
            thread=threading.current_thread().name,
        )
        for listener, caller in self._callers:
            told = replace(made, call=caller.signature, caller=caller.place)
            listener.receive(told, caller.asked)


def _triton() -> Path | None:
    """Triton's directory in effect, or the one that Inductor is about to name, in its own."""
    named, own = os.environ.get(TRITON), os.environ.get(INDUCTOR)
    if named or not own:
        return Path(named) if named else None
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    return Path(own, "triton", str(device))


def _watch_frames(module: ModuleType) -> None:
    """Sees each compile of a function at `_compile`; where that is missing none are told."""

    def compile_frame(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        before = graph_breaks()
        if "skip" in kwargs:  # frames that torch leaves out of the stacks it logs: this one too
            kwargs = {**kwargs, "skip": kwargs["skip"] + 1}

        def name(watched: _Watched) -> Compile | None:
            return _named(watched, args, kwargs, next(iter(graph_breaks() - before), ""))

        with _Watched(name) as watched:
            watched.result = wrapped(*args, **kwargs)
            return watched.result

    if hasattr(module, "_compile"):
        wrap(module, "_compile", compile_frame)
    else:
        _untold("compiles are", "torch._dynamo.convert_frame._compile")


def _named(watched: _Watched, args: Any, kwargs: Any, broken: str) -> Compile | None:
    """The compile of a function, from the arguments of `_compile` and Dynamo's record of it."""
    code: CodeType = args[0]
    compile_id = str(kwargs.get("compile_id", ""))
    if _PASSED_OVER in watched.raised.kinds or _has_no_code(watched):
        return None
    function = _function(code, args)
    _remember(_ears.functions, compile_id, function)
    key = (code.co_filename, function.rpartition(" in ")[2])
    resumed = _ears.breaks.get(key, "")
    if broken:
        _remember(_ears.breaks, key, headline(broken))
    guard = _failed_guard(compile_id)
    kind = "recompile" if guard else "resume" if is_resumed(code) else "first compile"
    one_graph = len(args) > 6 and bool(args[6])
    return Compile(
        kind=kind,
        function=function,
        reason=guard or (resumed if kind == "resume" else ""),
        as_written=not one_graph and _is_soft(watched.raised.kinds),
        entries=_entries(args),
        limit=getattr(sys.modules.get("torch._dynamo.config"), _LIMIT, None),
    )


def _function(code: CodeType, args: Any) -> str:
    """The place of the code; where torch has put a function of its own around a module of its own,
    also the module's class."""
    called = args[2].get("fn") if len(args) > 2 else None
    owner = getattr(called, "__self__", called)
    named = isinstance(owner, torch.nn.Module) and code.co_filename == _TORCHS_OWN
    return f"{place_of(code)} ({type(owner).__name__})" if named else place_of(code)


def _has_no_code(watched: _Watched) -> bool:
    """Whether Dynamo looked at a function and left it alone."""
    result = watched.result
    return not watched.raised.kinds and getattr(result, "guarded_code", result) is None


def _is_soft(kinds: tuple[str, ...]) -> bool:
    """Whether Dynamo keeps such an error to itself and lets the function run as it was written."""
    suppressed = getattr(sys.modules.get("torch._dynamo.config"), "suppress_errors", False)
    return bool(kinds) and (bool(suppressed) or any(name in kinds for name in _SOFT))


def _failed_guard(compile_id: str) -> str:
    """The guard for which a function was compiled again; empty where Dynamo keeps no record."""
    for record in reversed(compile_records()):
        if str(getattr(record, "compile_id", "")) == compile_id:
            return _guard(record)
    return ""


def _guard(record: Any) -> str:
    """The guard in a record, as torch wrote it but for what it says beside."""
    reason = failed_guard(record)
    return guard_text(reason) if reason else ""


def _entries(args: Any) -> int | None:
    """How many versions of the function there were, as torch counts them for its limit; None where
    `_compile` is not given that."""
    name = "num_cache_entries_with_same_id_matched_objs"
    return next((getattr(each, name) for each in args if hasattr(each, name)), None)


def _remember(table: dict[Any, str], key: object, text: str) -> None:
    if len(table) >= _MOST_REMEMBERED:
        table.pop(next(iter(table)), None)
    table[key] = text


def _watch_callbacks(module: ModuleType) -> None:
    """Sees what is compiled or recorded when compiled code runs, where torch tells its callbacks:
    at `CompilationCallbackHandler.install_callbacks`.

    Where that is missing none of it is told. Older torch does not say what it is: backward.
    """

    def install(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        inner = wrapped(*args, **kwargs)
        trigger = args[0] if args else kwargs.get("trigger")
        kind = _KINDS.get(getattr(trigger, "name", "LAZY_BACKWARD"))
        if kind is None or _here.busy:
            return inner
        compile_id = str(args[1] if len(args) > 1 else kwargs.get("compile_id", ""))
        return _around(inner, kind, compile_id)

    if hasattr(getattr(module, "CompilationCallbackHandler", None), "install_callbacks"):
        wrap(module, "CompilationCallbackHandler.install_callbacks", install)
    else:
        where = "torch._dynamo.callback.CompilationCallbackHandler.install_callbacks"
        _untold("backward passes and CUDA graphs are", where)


@contextmanager
def _around(inner: AbstractContextManager[Any], kind: str, compile_id: str) -> Iterator[None]:
    def name(watched: _Watched) -> Compile:
        return Compile(kind, _ears.functions.get(compile_id, f"graph {compile_id}"))

    with _Watched(name), inner:
        yield


def _watch_autotuning(module: ModuleType) -> None:
    """Sees each kernel that is tuned when it is first run, at
    `CachingAutotuner.autotune_to_one_config`; where that is missing none are told."""

    def autotune(wrapped: Callable[..., Any], kernel: Any, args: Any, kwargs: Any) -> Any:
        def name(_: _Watched) -> Compile:
            shown = str(getattr(getattr(kernel, "fn", None), "__name__", "a kernel"))
            return Compile("autotuning", shown, counts=Counts(autotunings=1))

        with _Watched(name):
            return wrapped(*args, **kwargs)

    if hasattr(getattr(module, "CachingAutotuner", None), "autotune_to_one_config"):
        wrap(module, "CachingAutotuner.autotune_to_one_config", autotune)
    else:
        where = "torch._inductor.runtime.triton_heuristics.CachingAutotuner.autotune_to_one_config"
        _untold("autotunings at the first run of a kernel are", where)
