"""A compiled function, loaded without the compiler.

Loading finds what its code names, loads its kernels and runs the few statements of the module that
Inductor generated. A call makes the graph's own call, with what AOTAutograd does around it.
"""

from __future__ import annotations

import importlib.util
import io
import os
import threading
import types
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot import ledger
from cachesvc.runtime.aot.backward import PREFIX
from cachesvc.runtime.aot.call_key import from_json, tensor_key
from cachesvc.runtime.aot.capture import DETACHED, SAME, owner_of
from cachesvc.runtime.aot.externs import extern_table
from cachesvc.runtime.aot.files import CONSTANTS, Stored, read_code, read_file
from cachesvc.runtime.aot.names import GLOBAL, resolved

_Graph = Callable[[list[Any]], Any]
_Written = tuple[tuple[torch.Tensor, torch.Tensor | None], ...]
_ENTRY = "kernel"
_POINTER = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
_ALIGNMENT = 16


class DoesNotFit(TccacheError):
    """A graph was given other inputs than those it was compiled for; it has not run."""


class PassedOn(Exception):
    """An error that the call's own caller must see: of somebody's hooks, which ran after the graph
    and may so tell their caller to stop, or one after which what the graph has written to cannot be
    given back. `error` is that one."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Function:
    """A loaded function: call it with the module (or what a method is bound to) first.

    The first call looks up whether all that was taken for constant is what it was; whoever knows
    that it may have changed calls `look_again`.
    """

    def __init__(self, stored: Stored, original: Any) -> None:
        facts = stored.facts
        self.stored = stored
        self.calls = 0
        self._call = _Call()
        self._asked: object = object()
        self._shown: object = None
        self._inputs = from_json(facts["inputs"])
        self._returned = [(int(n), int(i), str(how)) for n, i, how in facts["returned"]]
        self.mutated = tuple(int(n) for n in facts["mutated"])
        self._aligned = tuple(int(n) for n in facts["aligned"])
        self._amp = bool(facts["amp"])
        code, module, expressions, *backward = read_code(stored)
        self.own = owner_of(original)
        self.ledger = ledger.from_json(expressions, facts["ledger"])
        self._graph = _load_graph(stored, facts, module)
        self._training = self._gradients(*backward)
        self._function = self._around(code, self.own)

    @property
    def is_on_trial(self) -> bool:
        """Whether no call has shown yet that it works here."""
        return not self.calls

    @property
    def is_checked(self) -> bool:
        """Whether a call has shown that all is what it was, since that was asked for."""
        return self._shown is self._asked

    def look_again(self) -> None:
        """Has a call that begins from now on look up everything; only such a call can show it."""
        self._asked = object()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The call's output.

        Raises DoesNotFit where something that was taken for constant is not what it was, and then
        nothing was computed; PassedOn for what its caller must see. After any other error all that
        the graph writes to is as it was.
        """
        call, call.asked = self._call, self._asked
        if self._shown is not call.asked and (
            found := self.ledger.first_difference(self.own, args, kwargs)
        ):
            raise DoesNotFit(found)
        own = self.own.__globals__
        for name in self._globals:  # they may have been bound to other objects since
            if name not in own:
                raise DoesNotFit(f"the global {name} is not there any more")
            self._scope[name] = own[name]
        try:
            output = self._function(*args, **kwargs)
        except (DoesNotFit, PassedOn):
            raise
        except Exception as error:
            if not _put_back(call.written):
                raise PassedOn(error) from error
            raise
        finally:
            call.written = ()
        self.calls += 1
        return output

    def _gradients(self, module: types.CodeType | None = None) -> _Graph | None:
        """The graph with its backward pass, if it has one."""
        if module is None:
            return None
        facts = self.stored.facts["backward"]
        from cachesvc.runtime.aot.training import TrainingGraph

        backward = _load_graph(self.stored, facts, module, PREFIX)
        return TrainingGraph(facts, amp=self._amp, forward=self._graph, backward=backward)

    def _around(self, code: types.CodeType, own: Any) -> Callable[..., Any]:
        """Dynamo's code, bound to what the function that it replaces is bound to."""
        facts = self.stored.facts
        self._scope = scope = resolved(facts["names"], own.__globals__)
        self._globals = [n for n, recipe in facts["names"].items() if recipe[0] == GLOBAL]
        scope[facts["graph"]] = self._call_graph
        cells = dict(zip(own.__code__.co_freevars, own.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in code.co_freevars)
        function = types.FunctionType(code, scope, own.__name__, own.__defaults__, closure)
        function.__kwdefaults__ = own.__kwdefaults__
        return function

    def _call_graph(self, *inputs: Any) -> Any:
        call = self._call
        if self._shown is not call.asked:
            self._check(inputs)
            if call.asked is self._asked:  # else it has begun too early to show anything
                self._shown = call.asked
        if any(inputs[n].data_ptr() % _ALIGNMENT for n in self._aligned):
            raise DoesNotFit("the memory of an input is not aligned")
        if self.mutated and _are_mixed(inputs, self.mutated):
            raise DoesNotFit("memory that the graph writes to is that of another input, too")
        call.written = self._written(inputs)
        outputs = self._run(inputs)
        if self.mutated and self._training is None:
            written = (inputs[n] for n in self.mutated)
            torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])
        if self._returned:
            outputs = list(outputs)
            for number, index, how in self._returned:
                outputs[number] = _returned(inputs[index], outputs[number], how)
        return outputs

    def _run(self, inputs: tuple[Any, ...]) -> Any:
        """The graph's own call: without gradients, which none of its inputs wants, and without
        autocast, which it has compiled in."""
        if self._training is not None:
            return self._training(list(inputs))
        if not torch.is_grad_enabled() and not self._amp:
            return self._graph(list(inputs))
        with torch.no_grad(), torch._C._DisableAutocast() if self._amp else nullcontext():
            return self._graph(list(inputs))

    def _check(self, inputs: tuple[Any, ...]) -> None:
        expected = self._inputs
        if len(inputs) != len(expected):
            raise DoesNotFit(f"the graph takes {len(expected)} inputs and was given {len(inputs)}")
        for number, (item, key) in enumerate(zip(inputs, expected, strict=True)):
            if type(item) not in (torch.Tensor, torch.nn.Parameter) or tensor_key(item) != key:
                raise DoesNotFit(f"input {number} of the graph is of another kind")

    def _written(self, inputs: tuple[Any, ...]) -> _Written:
        """What the graph writes to, with copies as long as no call has shown that it works."""
        written = [inputs[n] for n in self.mutated]
        if not self.is_on_trial:
            return tuple((tensor, None) for tensor in written)
        try:
            return tuple((tensor, tensor.detach().clone()) for tensor in written)
        except Exception as error:  # there may be no memory left
            raise DoesNotFit(f"what the graph writes to cannot be copied: {error}") from error


class _Call(threading.local):
    """A call that this thread makes: what it was asked to show, and what its graph writes to."""

    asked: object = None
    written: _Written = ()


def _put_back(written: _Written) -> bool:
    """Gives tensors their copies' values; whether that is possible."""
    try:
        with torch.inference_mode():  # where tensors of any mode can be written to
            for tensor, copy in written:
                if copy is None:
                    return False
                tensor.copy_(copy)
    except Exception:  # as for memory that a tensor holds twice
        return False
    return True


def _are_mixed(inputs: tuple[Any, ...], mutated: tuple[int, ...]) -> bool:
    """Whether the memory of a mutated input belongs to another input, parameters left out."""
    loose = {id(t): t for t in inputs if type(t) is torch.Tensor}
    loose |= {id(inputs[n]): inputs[n] for n in mutated}
    storages = [tensor.untyped_storage()._cdata for tensor in loose.values()]
    written = {inputs[n].untyped_storage()._cdata for n in mutated}
    return sum(storage in written for storage in storages) > len({id(inputs[n]) for n in mutated})


def _returned(source: torch.Tensor, output: torch.Tensor, how: str) -> torch.Tensor:
    """An output that is an input or a view of it, as torch sees such: with what is said of the
    input's gradients and versions."""
    if how == SAME:
        return source
    if source.dtype != output.dtype:
        return output
    view = source.as_strided(output.size(), output.stride(), output.storage_offset())
    return view.detach() if how == DETACHED and view.requires_grad else view


def _load_graph(
    stored: Stored, facts: Mapping[str, Any], module: types.CodeType, prefix: str = ""
) -> _Graph:
    """The code of one pass with its kernels; the names of its files begin with `prefix`."""
    scope: dict[str, Any] = {"__name__": "cachesvc.generated"}
    for name, file in facts["libraries"].items():
        read_file(stored, file)
        scope[name] = _kernels.load(stored.folder / file, stored.facts["files"][file])
    if facts["launches"]:
        from cachesvc.runtime.aot.launch import load_launch

        for name, launch in facts["launches"].items():
            file = f"{prefix}{name}.cubin"
            read_file(stored, file)
            scope[name] = load_launch(launch, stored.folder / file)
    if facts["externs"]:
        scope["extern_kernels"] = extern_table(facts["externs"])
    exec(module, scope)  # noqa: S102 - compiled code is code
    if facts["constants"]:  # after the module, which names each of them and gives it no value
        scope.update(torch.load(io.BytesIO(read_file(stored, f"{prefix}{CONSTANTS}"))))
    graph: _Graph = scope["call"]
    return graph


class _Kernels:
    """The kernels of libraries; libraries of equal bytes are loaded once."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}
        self._lock = threading.Lock()

    def load(self, file: Path, digest: str) -> Any:
        with self._lock:
            if digest not in self._loaded:
                self._loaded[digest] = _loaded(digest, file)
            return self._loaded[digest]

    def unlock(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self._lock = threading.Lock()


_kernels = _Kernels()
os.register_at_fork(after_in_child=_kernels.unlock)


def _loaded(digest: str, file: Path) -> Any:
    """Loaded as Inductor loads it, under a name of its own, so that it never stands for a library
    of the same name with other bytes, nor one for it."""
    guards: Any = torch._C._dynamo.guards
    os.environ[_POINTER] = str(guards._torchinductor_pyobject_tensor_data_ptr)
    spec = importlib.util.spec_from_file_location(f"cachesvc_{digest}.{_ENTRY}", file)
    if spec is None or spec.loader is None:
        raise TccacheError(f"{file} is no library that Python can load")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, _ENTRY)
