"""Capturing a call: torch compiles it ahead of time, and what a later process needs is kept.

torch's own format needs its compiler again to be loaded, which takes longer than the model. What a
call needs is little: the code that Dynamo made around the graph, the code that Inductor made for
it and for its backward pass, their kernels. That is kept here; whatever else a graph has makes the
capture fail, with the reason.

torch's `aot_compile` and what it gives are read as torch 2.11 to 2.13 have them.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.call_key import tensor_key
from cachesvc.runtime.aot.externs import extern_places
from cachesvc.runtime.aot.ledger import Ledger, ledger_of, noting
from cachesvc.runtime.aot.names import recipes
from cachesvc.runtime.aot.source import reduce_module
from cachesvc.runtime.aot.tuning import run_once

if TYPE_CHECKING:
    from cachesvc.runtime.aot.backward import Backward

_PLAIN_OUTPUTS = ("non_alias", "unsafe_view_alias", "custom_function_view")
SAME, VIEW, DETACHED = "same", "view", "detached"
_SAME, _VIEW = "is_input", "alias_of_input"
_ADVICE = (" Hint: ", " Developer debug context: ")
_WRAPPERS = {
    "AOTDedupeWrapper": "one input twice, which it writes to",
    "AOTSyntheticBaseWrapper": "inputs that share memory, one of which it writes to",
}


class NotCaptured(TccacheError):
    """torch, or this library, cannot compile a call ahead of time; the text says why."""


Returned = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Captured:
    """All that a later process needs to make such a call without a compiler.

    `code` is Dynamo's code around the graph, `module` Inductor's for the graph; `names` tell what
    the globals of the first stand for. `libraries` are the files of native kernels by the name
    that the second gives them, `externs` torch's own kernels that it calls. `constants` are
    tensors that the graph holds. `inputs` is the metadata of the graph's inputs; the graph writes
    to those in `mutated`; the addresses of those in `aligned` must be multiples of 16 bytes.
    `returned` are outputs that are an input, or a view of one: numbers of both, and which it is.
    `backward` is the backward pass, if there are gradients.
    `ledger` holds what Dynamo took for constant, `traced` the code that it went through.
    """

    code: CodeType
    module: CodeType
    graph: str
    names: Mapping[str, list[str]]
    libraries: Mapping[str, Path]
    launches: Mapping[str, Any]
    externs: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    inputs: tuple[Any, ...]
    mutated: tuple[int, ...]
    aligned: tuple[int, ...]
    returned: tuple[Returned, ...]
    amp: bool
    backward: Backward | None
    ledger: Ledger
    traced: tuple[CodeType, ...]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What torch has compiled, the code that Dynamo went through, and all guards that it made."""

    function: Any
    traced: tuple[CodeType, ...]
    guards: tuple[Any, ...]


def capture(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Captured:
    """Compiles one call of a bound method or function, which is not made.

    `options` are Inductor's. Gradients and autocast are as they are set around this. Raises
    NotCaptured for whatever torch says against it.
    """
    try:
        compiled = _compiled(function, args, kwargs, options)
        return _distilled(compiled, function, args, kwargs)
    except NotCaptured:
        raise
    except TccacheError as error:
        raise NotCaptured(str(error)) from error
    except Exception as error:  # torch and the model may raise anything
        raise NotCaptured(f"{type(error).__name__}: {_told(error)}") from error


def _told(error: Exception) -> str:
    """What an error of torch's says in a line, without its advice."""
    text = " ".join(str(error).split())
    for advice in _ADVICE:
        text = text.partition(advice)[0]
    return text[:400]


def _compiled(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> _Compiled:
    dynamo = importlib.import_module("torch._dynamo")
    portable = getattr(torch.compiler, "keep_portable_guards_unsafe", None)
    if portable is None:
        raise NotCaptured(f"torch {torch.__version__} does not compile ahead of time")
    guards: list[Any] = []
    given = {**options, "guard_filter_fn": noting(portable, guards)}
    with ExitStack() as stack:
        stack.enter_context(dynamo.config.patch(_settings(dynamo.config)))
        stack.enter_context(_builtins_are_there())
        stack.enter_context(_nothing_around())
        traced = stack.enter_context(_noting_codes())
        compiled = torch.compile(function, fullgraph=True, dynamic=False, options=given)
        begin = getattr(compiled, "aot_compile", None)
        if begin is None:
            raise NotCaptured(f"torch {torch.__version__} does not compile ahead of time")
        with _graphs_expected():
            made = begin((tuple(args), dict(kwargs)))
        return _Compiled(made, tuple(traced), tuple(guards))


def _settings(config: Any) -> dict[str, Any]:
    """Each call is captured for just its shapes; on torch 2.11 the API waits to be switched on."""
    wanted = {
        "enable_aot_compile": True,
        "automatic_dynamic_shapes": False,
        "assume_static_by_default": True,
    }
    return {name: value for name, value in wanted.items() if hasattr(config, name)}


def _builtins_are_there() -> ExitStack:
    """torch 2.11 takes a built-in in captured code for a reference that is missing."""
    stack = ExitStack()
    environment = importlib.import_module("torch._dynamo.convert_frame").GraphRuntimeEnv
    check = getattr(environment, "_check_external_refs", None)
    if check is not None:

        def check_with_builtins(self: Any, scope: Mapping[str, Any]) -> Any:
            return check(self, {**vars(builtins), **scope})

        stack.enter_context(patch.object(environment, "_check_external_refs", check_with_builtins))
    return stack


@contextmanager
def _graphs_expected() -> Iterator[None]:
    """torch asserts that there is something to compile."""
    try:
        yield
    except AssertionError as error:
        if "backend_input" in str(error):
            raise NotCaptured("the call computes nothing that could be compiled") from error
        raise


def _nothing_around() -> AbstractContextManager[Any]:
    """torch puts a function of its own around a forward that was written in torch, or is decorated
    by it; captured is what is inside. Where torch does not have it, there is nothing to do."""
    outer = importlib.import_module("torch._dynamo.external_utils")
    if not hasattr(outer, "wrap_inline"):
        return nullcontext()
    return patch.object(outer, "wrap_inline", lambda function: function)


@contextmanager
def _noting_codes() -> Iterator[list[CodeType]]:
    """Notes the code objects that Dynamo goes through; torch keeps only where they stand."""
    found: list[CodeType] = []
    sources = importlib.import_module("torch._dynamo.package").SourceInfo
    add = sources.add_code

    def add_code(self: Any, code: CodeType) -> None:
        found.append(code)
        add(self, code)

    with patch.object(sources, "add_code", add_code):
        yield found


class _Reached(BaseException):
    """The code around a graph has come to the graph."""

    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self.inputs = inputs


def graph_inputs(
    call: Callable[..., Any], scope: dict[str, Any], graph: str, arguments: Any
) -> tuple[Any, ...]:
    """What the code around a graph gives to it, for these arguments; the graph does not run."""

    def reached(*inputs: Any) -> Any:
        raise _Reached(inputs)

    before = scope.get(graph)
    scope[graph] = reached
    try:
        args, kwargs = arguments
        call(*args, **kwargs)
    except _Reached as stopped:
        return stopped.inputs
    finally:
        scope[graph] = before
    raise NotCaptured("the captured code does not call its graph")


def _distilled(
    compiled: _Compiled,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Captured:
    artifacts = compiled.function._artifacts
    environment = artifacts.runtime_env
    entry = artifacts.compiled_fn.compiled_fn.serialize()
    returned, mutated = _check_wrappers(entry)
    result = entry.compiled_fw.result
    check_graph(result)
    own = owner_of(function)
    bound = (function.__self__,) if inspect.ismethod(function) else ()
    scope = compiled.function.fn.__globals__
    graph = artifacts.backend_id
    inputs = graph_inputs(compiled.function.fn, scope, graph, ((*bound, *args), kwargs))
    if strange := [type(item).__qualname__ for item in inputs if not _is_plain(item)]:
        raise NotCaptured(f"the graph takes a {strange[0]}")
    reduced = reduce_module(result.source_code)
    libraries, launches = kernels_of(result, dict(reduced.kernels), inputs, mutated)
    return Captured(
        code=environment.bytecode,
        module=reduced.code,
        graph=graph,
        names=recipes(environment.bytecode, scope, own.__globals__, graph),
        libraries=libraries,
        launches=launches,
        externs=extern_places(reduced.externs),
        constants=dict(result.constants or {}),
        inputs=tuple(tensor_key(item) for item in inputs),
        mutated=mutated,
        aligned=tuple(result.inputs_to_check),
        returned=returned,
        backward=_backward(entry, inputs, mutated),
        amp=any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")),
        ledger=ledger_of(
            compiled.guards,
            environment.import_sources,
            own,
            (*bound, *args),
            kwargs,
            traced=compiled.traced,
        ),
        traced=compiled.traced,
    )


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter)


def owner_of(function: Any) -> Any:
    """The plain Python function under a bound method. Raises NotCaptured if there is none."""
    own = getattr(function, "__func__", function)
    if not inspect.isfunction(own):
        raise NotCaptured(f"forward is a {type(own).__qualname__}, not a Python function")
    return own


def _check_wrappers(entry: Any) -> tuple[tuple[Returned, ...], tuple[int, ...]]:
    """What AOTAutograd does around this graph: outputs that are inputs, inputs written to.

    Raises NotCaptured for all that would have to be done besides.
    """
    facts = entry.runtime_metadata
    if entry.maybe_subclass_meta is not None:
        raise NotCaptured("the graph takes tensor subclasses")
    for wrapper in entry.dispatch_wrappers:
        if getattr(wrapper, "needs_post_compile", True):
            name = type(wrapper).__name__
            raise NotCaptured(f"the graph has {_WRAPPERS.get(name, f'a wrapper, {name}')}")
    strange = {
        "intermediate bases": facts.num_intermediate_bases,
        "tokens": facts.tokens,
        "functional random numbers": facts.is_rng_op_functionalized,
        "states of random numbers": facts.num_graphsafe_rng_states,
        "a change of the gradients' mode": facts.grad_enabled_mutation is not None,
        "inputs written to afterwards": facts.num_mutated_inp_runtime_indices,
        "guards": entry.guards_expr,
    }
    if found := [name for name, value in strange.items() if value]:
        raise NotCaptured(f"the graph has {' and '.join(found)}")
    mutated = [n for n, info in enumerate(facts.input_info) if info.mutates_data]
    if any(info.mutates_metadata for info in facts.input_info):
        raise NotCaptured("the graph changes the shape of an input")
    return tuple(_returned(facts.output_info)), tuple(mutated)


def _returned(outputs: Iterable[Any]) -> Iterator[Returned]:
    """The outputs that are inputs or views of them: as they are, as views, as detached views."""
    for number, output in enumerate(outputs):
        name = output.output_type.name
        if name == _SAME:
            yield number, int(output.base_idx), SAME
        elif name == _VIEW:
            yield number, int(output.base_idx), VIEW if output.requires_grad else DETACHED
        elif name not in _PLAIN_OUTPUTS:
            raise NotCaptured(f"an output is {name.replace('_', ' ')}")


def _backward(entry: Any, inputs: Sequence[Any], mutated: Sequence[int]) -> Backward | None:
    from cachesvc.runtime.aot.backward import backward_of

    return backward_of(entry, inputs, mutated)


def check_graph(result: Any) -> None:
    """Raises NotCaptured for a graph that needs more than its code and its kernels."""
    fields = vars(result)
    strange = {
        "frozen parameters": fields.get("frozen_param_names"),
        "objects of TorchScript": fields.get("torchbind_constants"),
        "CUDA graphs": fields.get("cudagraph_info") is not None,
        "guards": fields.get("guards_expr"),
        "partitions": fields.get("partition_maps"),
        "a C++ wrapper": (fields.get("fx_kwargs") or {}).get("cpp_wrapper"),
    }
    if found := [name for name, value in strange.items() if value]:
        raise NotCaptured(f"the graph has {' and '.join(found)}")


def kernels_of(
    result: Any, kinds: Mapping[str, str], inputs: Sequence[Any], mutated: Sequence[int]
) -> tuple[dict[str, Path], dict[str, Any]]:
    """The native libraries and the launches of the graph's kernels, by name.

    A graph with Triton kernels runs once on its inputs, so that they are tuned.
    """
    module = generated(result.source_code)
    libraries: dict[str, Path] = {}
    launches: dict[str, Any] = {}
    if "triton" in kinds.values():
        run_once(module.call, inputs, mutated)
    for name, kind in kinds.items():
        kernel = getattr(module, name)
        if kind == "cpp_pybinding":
            libraries[name] = Path(kernel.__self__.__file__)
        elif kind == "triton":
            from cachesvc.runtime.aot.launch import launch_of

            launches[name] = launch_of(kernel)
        else:
            raise NotCaptured(f"a kernel is compiled by {kind}")
    return libraries, launches


def generated(text: str) -> Any:
    """The module that Inductor has loaded from this text."""
    cache = importlib.import_module("torch._inductor.codecache").PyCodeCache
    for module in reversed(list(cache.modules)):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_file() and Path(file).read_text() == text:
            return module
    raise NotCaptured("Inductor has not kept the module that it generated")
