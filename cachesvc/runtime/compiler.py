"""Starts on a machine without a C++ compiler: all from the cache, and eager where that fails.

Inductor asks for the compiler also where it builds nothing: to learn the vector instructions it
compiles a probe, and the key of a library holds the command line that would build it. Here both are
answered as they are on a machine with the compiler that Inductor looks for by default. A graph
that needs a build after all runs eager, at the example calls as at every later one.

Each hook waits for its module to be imported and does nothing while a compiler is found. Where
this torch lacks what a hook wraps, that hook is left out: torch then fails as it does by itself,
and the graph runs eager, or, without `OutputGraph.call_user_compiler`, the call raises.
"""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from cachesvc.runtime.watch import watch, wrap

_DEFAULT = "clang++" if sys.platform == "darwin" else "g++"
_TRITONS_WORDS = "Failed to find C compiler"  # a RuntimeError of no class of its own
_OPTIONAL = ("_is_amx_fp16_supported", "_is_avx512_bf16_supported")

_log = logging.getLogger(__name__)


class _State:
    """What is being done without: the compiler's name, None while there is one."""

    def __init__(self) -> None:
        self.missing: str | None = None
        self.isa: Any = None
        self.eager: list[str] = []


class _Trial(threading.local):
    """The vector instructions that a thread tries a key with, and the sources it came to."""

    isa: Any = None
    sources: list[str] | None = None


_state = _State()
_trial = _Trial()


def has_compiler() -> bool:
    """Whether Inductor's own search would find a C++ compiler here.

    Nothing is run and nothing of Inductor is imported: its setting counts once it is there, before
    that the variable CXX from which it comes. On Windows the answer is always yes: the search is
    another one there.
    """
    if sys.platform == "win32":
        return True
    names = _looked_for()
    if None in names and os.environ.get("TORCH_INDUCTOR_INSTALL_GXX"):
        return True  # torch then fetches a compiler itself
    return any(shutil.which(name) for name in names if name)


def do_without_compiler() -> bool:
    """Prepares this process for calls without a C++ compiler; whether there is none.

    To be called before the calls, at each start anew. Where a compiler is found, torch is left as
    it is.
    """
    names = [name for name in _looked_for() if name]
    _state.missing = None if has_compiler() else (names or [_DEFAULT])[0]
    if _state.missing is not None:
        _hook()
    return _state.missing is not None


def eager_graphs() -> int:
    """How many graphs of this process run eager because there is no compiler.

    The forward of a graph and its backward pass count as one each, if both do.
    """
    return len(_state.eager)


def notes(since: int = 0) -> list[str]:
    """What is to be said about the graphs that run eager, but for the first `since` of them."""
    graphs = _state.eager[since:]
    if not graphs:
        return []
    return [
        f"no C++ compiler ({graphs[-1]}) on PATH: {len(graphs)} graphs run eager; install one, or"
        " publish the model's kernels from a machine that has one"
    ]


def _looked_for() -> tuple[str | None, ...]:
    """The compilers that Inductor looks for, best first; None stands for one it would install.

    Where this torch keeps no such setting, what it would be by default.
    """
    config = getattr(sys.modules.get("torch._inductor.config"), "cpp", None)
    found = getattr(config, "cxx", (None, os.environ.get("CXX", _DEFAULT)))
    return tuple(found) if isinstance(found, list | tuple) else (found,)


@functools.cache
def _hook() -> None:
    import wrapt

    watch()  # first, so that what counts builds lies below and sees only those that begin
    for module, hook in (
        ("torch._inductor.cpp_builder", _spare_search),
        ("torch._inductor.cpu_vec_isa", _spare_probe),
        ("torch._inductor.codecache", _spare_library),
        ("torch._inductor.compile_fx", _run_backward_eager),
        ("torch._dynamo.output_graph", _run_eager),
    ):
        wrapt.register_post_import_hook(hook, module)


def _spare_search(module: ModuleType) -> None:
    """`cpp_compiler_search` answers with the name that the keys of the libraries hold, and
    `CppBuilder.build` refuses as the search would have done."""

    def search(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs) if _state.missing is None else _state.missing

    def build(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        if _state.missing is None:
            return wrapped(*args, **kwargs)
        from torch._inductor.exc import InvalidCxxCompiler

        raise InvalidCxxCompiler

    if hasattr(module, "cpp_compiler_search"):
        wrap(module, "cpp_compiler_search", search)
        if hasattr(getattr(module, "CppBuilder", None), "build"):
            wrap(module, "CppBuilder.build", build)


def _spare_probe(module: ModuleType) -> None:
    """`VecISA.check_build` says yes: torch asks it only for what the CPU has, and what the
    compiler can do besides matters to nobody here."""

    def check_build(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs) if _state.missing is None else True

    if hasattr(getattr(module, "VecISA", None), "check_build"):
        wrap(module, "VecISA.check_build", check_build)


def _spare_library(module: ModuleType) -> None:
    """`_precompile_header` makes none, and `CppCodeCache.load_async` finds the library that lies
    there, also if it was built for fewer vector instructions than this CPU has.

    Without `write` or `pick_vec_isa` only the first choice of instructions is looked for.
    """

    def precompile(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs) if _state.missing is None else None

    def pick(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs) if _trial.isa is None else _trial.isa

    def write(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        if _trial.sources is not None:
            _trial.sources.append(str(result[1]))
        return result

    def load(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        if _state.missing is None:
            return wrapped(*args, **kwargs)
        kwargs = {**kwargs, "submit_fn": None}  # nobody builds, so nobody builds ahead
        return _first_found(functools.partial(wrapped, *args, **kwargs), module)

    if hasattr(module, "_precompile_header"):
        wrap(module, "_precompile_header", precompile)
    if all(hasattr(module, name) for name in ("CppCodeCache", "pick_vec_isa", "write")):
        wrap(module, "pick_vec_isa", pick)
        wrap(module, "write", write)
        wrap(module, "CppCodeCache.load_async", load)


def _first_found(load: Callable[[], Any], codecache: ModuleType) -> Any:
    """What `load` gives under the first choice of instructions whose library lies there.

    The choice that served last comes first; if none serves, what torch would have come to.
    """
    loads = []
    for isa in _choices(codecache):
        with _trying(isa) as sources:
            loads.append(load())
        if any(os.path.exists(_library(source)) for source in sources):
            _state.isa = isa
            return loads[-1]
    return loads[0 if _state.isa is None else 1]


def _library(source: str) -> str:
    return f"{os.path.splitext(source)[0]}.so"


@contextmanager
def _trying(isa: Any) -> Iterator[list[str]]:
    _trial.isa, _trial.sources = isa, []
    try:
        yield _trial.sources
    finally:
        _trial.isa = _trial.sources = None


def _choices(codecache: ModuleType) -> Iterator[Any]:
    """Choices of vector instructions: the last that served, what torch picks, all below that.

    None leaves the picking to torch.
    """
    if _state.isa is not None:
        yield _state.isa
    yield None
    picked = codecache.pick_vec_isa()
    if picked:
        yield from _below(picked)


def _below(picked: Any) -> Iterator[Any]:
    """What a compiler of another age or a CPU of another kind may have been content with.

    Nothing where this torch has no such list.
    """
    module: Any = sys.modules.get("torch._inductor.cpu_vec_isa")
    if not hasattr(module, "valid_vec_isa_list") or not hasattr(module, "invalid_vec_isa"):
        return
    for isa in (*module.valid_vec_isa_list(), module.invalid_vec_isa):
        if isa.bit_width() <= picked.bit_width():
            yield from _without_optional(isa)


def _without_optional(isa: Any) -> Iterator[Any]:
    yield isa
    has = [name for name in _OPTIONAL if getattr(isa, name, False)]
    for size in range(1, len(has) + 1):
        for left_out in itertools.combinations(has, size):
            variant = copy.copy(isa)
            for name in left_out:
                setattr(variant, name, False)
            yield variant


def _run_eager(module: ModuleType) -> None:
    """`OutputGraph.call_user_compiler` gives the graph as Dynamo captured it, where its compile
    failed for want of a compiler; Dynamo guards and calls it like a compiled one."""

    def compile_graph(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        try:
            return wrapped(*args, **kwargs)
        except Exception as error:
            if not _is_excused(error):
                raise
            return (args[0] if args else kwargs["gm"]).forward

    if hasattr(getattr(module, "OutputGraph", None), "call_user_compiler"):
        wrap(module, "OutputGraph.call_user_compiler", compile_graph)


def _run_backward_eager(module: ModuleType) -> None:
    """`_compile_fx_inner` gives a backward pass that runs eager: it is compiled when it is first
    needed, where Dynamo does not look on any more."""

    def compile_inner(wrapped: Callable[..., Any], _: object, args: Any, kwargs: Any) -> Any:
        if _state.missing is None or not kwargs.get("is_backward"):
            return wrapped(*args, **kwargs)
        graph = _copied(args[0] if args else kwargs["gm"])
        try:
            return wrapped(*args, **kwargs)
        except Exception as error:
            if not _is_excused(error):
                raise
            return _boxed(graph)

    if hasattr(module, "_compile_fx_inner"):
        wrap(module, "_compile_fx_inner", compile_inner)


def _copied(module: Any) -> Any:
    """The same graph over the same tensors: Inductor rewrites what it is given, and some of that
    can only be compiled."""
    from torch.fx import GraphModule

    return GraphModule(module, copy.deepcopy(module.graph))


def _boxed(graph: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A function that empties the list of its arguments, as AOTAutograd wants it, so that what is
    not needed any more is freed meanwhile."""

    def run(arguments: list[Any]) -> Any:
        values = tuple(arguments)
        arguments.clear()
        return graph(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _is_excused(error: BaseException) -> bool:
    """Whether a graph is to run eager after this error, which is then counted and logged."""
    if _state.missing is None or not wants_compiler(error):
        return False
    _state.eager.append(_state.missing)
    _log.warning("a graph runs eager: there is no C++ compiler (%s) on PATH", _state.missing)
    return True


def wants_compiler(error: BaseException) -> bool:
    """Whether what torch raised comes from a C++ compiler, or Triton's C compiler, not found."""
    return any(
        type(cause).__name__ == "InvalidCxxCompiler"
        or "InvalidCxxCompiler" in str(cause)
        or _TRITONS_WORDS in str(cause)
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all that it came from; torch keeps some of it in `inner_exception`."""
    known: list[BaseException] = []
    found: list[Any] = [error]
    while found:
        cause = found.pop()
        if isinstance(cause, BaseException) and not any(cause is item for item in known):
            known.append(cause)
            found += [cause.__cause__, cause.__context__, getattr(cause, "inner_exception", None)]
    return iter(known)
