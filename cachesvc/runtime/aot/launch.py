"""Triton kernels, launched without Triton.

torch can launch a kernel from its machine code alone; what it tells that part of itself about one
kernel is read off in the process that captures. A later process gives it the same again, and needs
neither Triton nor Inductor.

Inductor's launchers are read as torch 2.11 to 2.13 have them.
"""

from __future__ import annotations

import base64
import builtins
import copy
import importlib
import marshal
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

from cachesvc.core.digest import Json
from cachesvc.core.errors import TccacheError
from cachesvc.runtime.aot.capture import NotCaptured

_RUNNER = "runner"
_STREAM = "stream"
_LONGEST_NAME = 150


@dataclass(frozen=True, slots=True)
class Launch:
    """How one kernel is launched.

    `cubin` is the file of its machine code, `kernel` its name therein; `shared` is its shared
    memory in bytes, `types` has a letter for each argument, with `blanks` null pointers at the end.
    `code` is torch's own, which computes the grid from the arguments and calls `runner`.
    """

    cubin: Path
    kernel: str
    shared: int
    warps: int
    types: str
    blanks: int
    device: int
    code: CodeType

    def to_json(self) -> Json:
        """All but the machine code."""
        return {
            "kernel": self.kernel,
            "shared": self.shared,
            "warps": self.warps,
            "types": self.types,
            "blanks": self.blanks,
            "device": self.device,
            "code": base64.b64encode(marshal.dumps(self.code)).decode(),
        }


def launch_of(kernel: Any) -> Launch:
    """How a kernel of a generated module is launched, once it has run and is tuned.

    Raises NotCaptured for one that torch cannot launch from its machine code alone, and where
    Inductor keeps its kernels in another way than is known here.
    """
    try:
        launcher = _static_launcher(kernel)
        static = launcher.__globals__[_RUNNER].__self__
        shared, warps, types, blanks = _given(static)
        return Launch(
            cubin=_cubin(static, launcher.cache_hash, kernel.triton_meta.get("device")),
            kernel=str(static.name),
            shared=shared,
            warps=warps,
            types=types,
            blanks=blanks,
            device=int(kernel.triton_meta.get("device") or 0),
            code=_checked(launcher.__code__),
        )
    except NotCaptured:
        raise
    except Exception as error:  # Inductor is read here, not called as it is meant to be
        name = getattr(getattr(kernel, "fn", None), "__name__", "a kernel")
        text = " ".join(str(error).split())[:200]
        raise NotCaptured(
            f"the launch of {name} cannot be read: {type(error).__name__}: {text}"
        ) from error


def _static_launcher(kernel: Any) -> Any:
    """torch's launcher of the one configuration that a kernel is left with."""
    name = kernel.fn.__name__
    if len(kernel.launchers) != 1:
        raise NotCaptured(f"{name} has not run, so its configuration is not chosen yet")
    (launcher,) = kernel.launchers
    if getattr(launcher, "_is_static", False):
        return launcher
    results = [result for result in kernel.compile_results if result.config is launcher.config]
    if len(results) != 1:
        raise NotCaptured(f"what {name} was compiled to is not kept")
    return _made_static(kernel, results[0])


def _made_static(kernel: Any, result: Any) -> Any:
    """A launcher that needs no Triton, for a kernel that was compiled to be launched by Triton, as
    those that users write are."""
    heuristics = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    inductor = importlib.import_module("torch._inductor").config
    kind = heuristics.StaticTritonCompileResult
    _name_whole(heuristics, kernel, result.kernel)
    with ExitStack() as stack:
        for name in ("use_static_triton_launcher", "strict_static_triton_launcher"):
            stack.enter_context(inductor.patch({name: True}))
        if hasattr(inductor, "static_launch_user_defined_triton_kernels"):
            stack.enter_context(inductor.patch(static_launch_user_defined_triton_kernels=True))
        try:
            static = kind.can_statically_launch(
                result.kernel, kernel.inductor_meta, kernel.triton_meta, kernel.heuristic_type
            )
        except heuristics.CannotStaticallyLaunchKernel as error:
            raise NotCaptured(
                f"{kernel.fn.__name__} needs Triton at each launch: {error}"
            ) from error
    made = kind(static, result.config, result.compile_meta, result.inductor_meta)
    return made.make_launcher()


def _name_whole(heuristics: Any, kernel: Any, compiled: Any) -> None:
    """Puts the machine code under the kernel's whole name, too: Triton cuts the names of its files
    at 150 characters, and torch does not find those."""
    key = heuristics.triton_hash_to_path_key(compiled.hash)
    folder = Path(heuristics.triton_cache_dir(kernel.triton_meta.get("device") or 0)) / key
    name = str(compiled.src.fn.__name__)
    whole, cut = folder / f"{name}.cubin", folder / f"{name[:_LONGEST_NAME]}.cubin"
    if cut.is_file() and not whole.exists():
        shutil.copyfile(cut, whole)


class _Listener:
    """Stands in for the part of torch that launches, and keeps what it is given."""

    def __init__(self) -> None:
        self.given: tuple[Any, ...] = ()

    def _launch_kernel(self, *given: Any) -> None:
        self.given = given


def _given(static: Any) -> tuple[int, int, str, int]:
    """What torch gives for a kernel at each launch: bytes of shared memory, warps, types, and how
    many null pointers after the arguments."""
    listener = _Listener()
    copied = copy.copy(static)  # without handles, so that it takes none with it when it goes
    vars(copied).update(function=0, C_impl=listener)
    count = len(static.arg_tys)
    copied.run(1, 1, 1, 0, *range(count))
    _, _, _, _, warps, shared, types, arguments, _ = listener.given
    blanks = len(arguments) - count
    if tuple(arguments) != (*range(count), *[None] * blanks):
        raise NotCaptured(f"torch changes the arguments of {static.name}")
    return int(shared), int(warps), str(types), blanks


def _cubin(static: Any, folder: str, device: int | None) -> Path:
    """The file of the machine code; torch forgets where it lies once it is loaded."""
    heuristics = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    place = Path(heuristics.triton_cache_dir(device or 0)) / folder
    endings = ("cubin", "hsaco")
    found = [file for end in endings if (file := place / f"{static.name}.{end}").is_file()]
    if not found:
        raise NotCaptured(f"the machine code of {static.name} is not in {place}")
    return found[0]


def _checked(code: CodeType) -> CodeType:
    """A launcher's code. Raises NotCaptured if it names more than Python has built in."""
    last = code.co_varnames[code.co_argcount - 1] if code.co_argcount else ""
    strange = [n for n in code.co_names if n != _RUNNER and not hasattr(builtins, n)]
    if last != _STREAM or code.co_freevars or strange:
        raise NotCaptured(f"a launcher names {', '.join(strange) or 'no stream'}")
    return code


class Kernel:
    """A kernel as generated code calls it: `kernel.run(*arguments, stream=stream)`.

    Its machine code is loaded at the first launch, when generated code has made its device the
    current one, and stays loaded for as long as the process lives: a launch may still be under way
    when nobody holds the kernel any more.
    """

    def __init__(self, facts: Mapping[str, Any], cubin: Path) -> None:
        self._facts = facts
        self._cubin = cubin
        self._launches = _launches()
        self.run: Callable[..., None] = self._first_run

    def load(self) -> None:
        """Loads the machine code onto the current device, if it was not yet.

        Raises RuntimeError if the driver does not take it.
        """
        if self.run == self._first_run:
            self.run = self._loaded()

    def _first_run(self, *arguments: Any, stream: int) -> None:
        self.load()
        self.run(*arguments, stream=stream)

    def _loaded(self) -> Callable[..., None]:
        facts = self._facts
        shared, warps, types = int(facts["shared"]), int(facts["warps"]), str(facts["types"])
        made = self._launches._load_kernel(
            str(self._cubin), str(facts["kernel"]), shared, int(facts["device"])
        )
        function = made[-3]  # before its registers and spills; later torch gives a module first
        launch = self._launches._launch_kernel
        blanks = (None,) * int(facts["blanks"])

        def runner(x: int, y: int, z: int, stream: int, *arguments: Any) -> None:
            launch(function, x, y, z, warps, shared, types, arguments + blanks, stream)

        code = marshal.loads(base64.b64decode(facts["code"]))  # noqa: S302 - as a bundle's code is
        return FunctionType(code, {_RUNNER: runner})


def load_launch(facts: Mapping[str, Any], cubin: Path) -> Kernel:
    """The kernel of `Launch.to_json`, with its machine code in a file.

    Raises TccacheError where torch cannot launch kernels by itself.
    """
    return Kernel(facts, cubin)


def _launches() -> Any:
    """The part of torch that launches machine code."""
    found = getattr(torch._C, "_StaticCudaLauncher", None)
    if found is None:
        raise TccacheError(f"torch {torch.__version__} here launches no kernel by itself")
    return found
