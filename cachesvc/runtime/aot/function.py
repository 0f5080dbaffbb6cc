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
_ENTRY = "kernel"
_POINTER = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
_ALIGNMENT = 16


class DoesNotFit(TccacheError):
    """A graph was given other inputs than those it was compiled for; it has not run."""


class PassedOn(Exception):
    """An error of somebody's hooks, which ran after the graph: `error` is none of the function's,
    and may be how the hooks tell their own caller to stop."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Function:
    """A loaded function: call it with the module (or what a method is bound to) first.

    `checked` is false until a call has shown that the graph's inputs are those that it was
    compiled for; whoever knows that they may have changed sets it to false again.
    """

    def __init__(self, stored: Stored, original: Any) -> None:
        facts = stored.facts
        self.stored = stored
        self.checked = False
        self.calls = 0
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The call's output. Raises DoesNotFit where something that was taken for constant is not
        what it was, and then nothing was computed."""
        if not self.checked and (found := self.ledger.first_difference(self.own, args, kwargs)):
            raise DoesNotFit(found)
        own = self.own.__globals__
        for name in self._globals:  # they may have been bound to other objects since
            if name not in own:
                raise DoesNotFit(f"the global {name} is not there any more")
            self._scope[name] = own[name]
        output = self._function(*args, **kwargs)
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
        if not self.checked:
            self._check(inputs)
        if any(inputs[n].data_ptr() % _ALIGNMENT for n in self._aligned):
            raise DoesNotFit("the memory of an input is not aligned")
        if self.mutated and _are_mixed(inputs, self.mutated):
            raise DoesNotFit("memory that the graph writes to is that of another input, too")
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
        self.checked = True


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
        scope[name] = _load_kernel(stored.folder / file, stored.facts["files"][file])
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


_LOADING = threading.Lock()
_KERNELS: dict[str, Any] = {}


def _load_kernel(file: Path, digest: str) -> Any:
    """The kernel of a library; libraries of equal bytes are loaded once."""
    with _LOADING:
        if digest not in _KERNELS:
            _KERNELS[digest] = _loaded(digest, file)
        return _KERNELS[digest]


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
