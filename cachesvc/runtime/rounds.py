"""A round: all calls of a workload made once, each from the same random state, outputs kept.

Two processes that make a round of one workload have drawn the same random numbers before each
call, so that what they give differs by what was compiled, and by nothing else; except where the
compiler draws random numbers in another way than eager torch does.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.core.measure import CallTime
from cachesvc.core.outputs import OutputRecord, Tolerance
from cachesvc.core.workload_options import WorkloadOptions
from cachesvc.runtime.calls import Call, example_calls, synchronize
from cachesvc.runtime.incidents import IncidentMeter
from cachesvc.runtime.leaves import Leaves, copied
from cachesvc.runtime.outputs import compare_leaves, inputs_digest, record_of
from cachesvc.runtime.series import series
from cachesvc.runtime.weights import weights_digest
from cachesvc.runtime.workloads import Compile, Workload, load_workload, told

# What changes less than this part of the tolerance from one seed to another is not random.
_NOTICED = 0.01


@dataclass(frozen=True)
class Made:
    """One call that was made, by its number in the round.

    Seconds are of the call alone; `ended` is the monotonic clock's. `inputs` and `weights` are
    digests from before the call, empty where nobody asked for them or they are not known; `drew`
    says whether the call used up random numbers, `reason` which guard failed, where something was
    compiled again.
    """

    number: int
    signature: str
    seconds: float
    ended: float
    output: Leaves
    inputs: str
    weights: str
    drew: bool
    reason: str

    def record(
        self, random_paths: Iterable[str] = (), relative: float | None = None
    ) -> OutputRecord:
        """The record of its output; `relative` is the tolerance that was asked for."""
        paths = frozenset(random_paths)
        made = record_of(self.signature, self.inputs, self.weights, self.output, paths)
        return replace(made, tolerance=relative)


class Round:
    """The calls of a workload, to be made by others, in order and once each.

    `compiled` is whether a model that nobody compiled is compiled by these calls. With `traced`
    the digests of inputs and weights are taken before each call.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        compiled: bool,
        traced: bool = False,
        seeds: Callable[[int], int] = lambda number: 0,
    ) -> None:
        self._workload = workload
        self._calls = example_calls(workload.model, None, workload.calls, compiled=compiled)
        self._traced = traced
        self._seeds = seeds
        self._made: dict[int, Made] = {}
        self._keeping: Callable[[], Made] | None = None
        self._error: BaseException | None = None

    @property
    def calls(self) -> list[Callable[[], Any]]:
        """Callables without arguments, named by their signatures."""
        return [self._callable(number, call) for number, call in enumerate(self._calls)]

    def _callable(self, number: int, call: Call) -> Callable[[], Any]:
        def make() -> Any:
            # The output is kept only now, so that keeping it costs the call no time; and before
            # anything else is called, which may write over it.
            self._keep()
            inputs, weights = self._digests(call) if self._traced else ("", "")
            seed(self._seeds(number))
            before, incidents = random_state(), IncidentMeter()
            started = time.monotonic()
            try:
                output = call.run()
                synchronize()
            except BaseException as error:
                self._error = error
                raise
            ended = time.monotonic()
            self._keeping = lambda: Made(
                number=number,
                signature=call.signature,
                seconds=ended - started,
                ended=ended,
                output=copied(output),
                inputs=inputs,
                weights=weights,
                drew=random_state() != before,
                reason=incidents.recompile_reason(),
            )
            return output

        make.__qualname__ = call.signature.removeprefix("call ")
        return make

    def _digests(self, call: Call) -> tuple[str, str]:
        inputs = "" if call.arguments is None else inputs_digest(*call.arguments)
        return inputs, weights_digest(self._workload.model)

    def _keep(self) -> None:
        if self._keeping is None:
            return
        made = self._keeping()
        self._keeping = None
        self._made.setdefault(made.number, made)

    def finish(self) -> tuple[Made, ...]:
        """What was made. Raises TccacheError naming the call that failed, and with what."""
        self._keep()
        for number, call in enumerate(self._calls):
            if number not in self._made:
                reason = told(self._error) if self._error else "it was not made"
                of = f"call {number + 1} of {len(self._calls)}, {call.signature}"
                raise TccacheError(f"{of}: {reason}")
        return tuple(self._made[number] for number in range(len(self._calls)))

    def again(self, rounds: int, enough_s: float, triton: Path | None) -> Iterator[CallTime]:
        """Makes all calls again, as `series` says; their outputs are not kept."""
        return series(self._calls, triton, rounds=rounds, enough_s=enough_s)


def seed(number: int) -> None:
    """Sets every generator that a program draws from without naming one."""
    torch.manual_seed(number)
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)


def random_state() -> str:
    """A digest of the state of these generators."""
    digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for state in torch.cuda.get_rng_state_all():
            digest.update(state.numpy().tobytes())
    digest.update(repr(random.getstate()).encode())
    if "numpy" in sys.modules:
        digest.update(repr(sys.modules["numpy"].random.get_state()).encode())
    return digest.hexdigest()


def load_seeded(
    target: str, options: WorkloadOptions = WorkloadOptions(), compile: Compile | None = None
) -> Workload:
    """The workload of a target, its weights drawn from seed 0; see `load_workload`."""
    seed(0)
    return load_workload(target, options, compile)


def random_paths(
    target: str, made: Sequence[Made], limit: Tolerance
) -> tuple[tuple[str, ...], ...]:
    """For each call of an eager round, the paths in its output that depend on random numbers.

    The workload is made anew and its calls made eagerly from other seeds; what differs then
    depends on them. Nothing is made where no call has drawn any.
    """
    first = next((number for number, call in enumerate(made) if call.drew), None)
    if first is None:
        return ((),) * len(made)
    try:
        others = _with_other_seeds(target)
    except UsageError:  # a target that can be made only once: all that may be random counts as such
        return tuple(
            tuple(path for path, _ in call.output) if number >= first else ()
            for number, call in enumerate(made)
        )
    strict = _tightened(limit)
    return tuple(
        tuple(
            path
            for path, leaf in call.output
            if compare_leaves([(path, leaf)], [i for i in other.output if i[0] == path], strict)
        )
        for call, other in zip(made, others, strict=True)
    )


def _with_other_seeds(target: str) -> tuple[Made, ...]:
    workload = load_seeded(target)
    other = Round(workload, compiled=False, seeds=lambda number: 1 + number)
    with torch.set_grad_enabled(workload.training), torch.compiler.set_stance("force_eager"):
        for call in other.calls:
            call()
    return other.finish()


def _tightened(limit: Tolerance) -> Tolerance:
    usual = limit.of("float32") if limit.relative is None else limit.relative
    return Tolerance(usual * _NOTICED)


def save(file: Path, made: Sequence[Made], paths: Sequence[Sequence[str]] | None) -> None:
    """Writes the outputs of a round, whole, for the rounds of other processes.

    `paths` are those that depend on random numbers, for each call; None if nobody asked.
    """
    rounds = [
        {"signature": call.signature, "output": call.output, "random": list(random)}
        for call, random in zip(made, paths or [()] * len(made), strict=True)
    ]
    torch.save(rounds, file)


def load(file: Path) -> list[Mapping[str, Any]]:
    """What `save` wrote."""
    saved: list[Mapping[str, Any]] = torch.load(file)
    return saved
