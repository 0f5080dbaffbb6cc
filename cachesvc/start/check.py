"""The output check: before traffic, each call's output against what is known to be right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cachesvc.core.outputs import differences, find
from cachesvc.runtime.calls import Call
from cachesvc.runtime.eager import eagerly, is_training
from cachesvc.start.attempt import Attempt
from cachesvc.start.target import named_models

RECORDED = "equal to the record of the bundle"
EAGER = "equal to an eager call"
CHANGES = "not compared: the call changes its inputs or the model"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the comparison came to: `said` for the report, and what was wrong, if anything."""

    said: str
    wrong: tuple[str, ...] = ()


@dataclass
class Check:
    """Compares the outputs of one attempt's calls.

    The digests are taken before a call is made: it may change its inputs, such as a cache that it
    fills.
    """

    attempt: Attempt
    inputs: str = field(default="", init=False)
    weights: str = field(default="", init=False)

    def before(self, call: Call) -> None:
        """Looks at what the call is going to see. Never raises: then nothing is compared."""
        try:
            self.inputs, self.weights = self._digests(call)
        except Exception:  # inputs may be objects of any kind
            self.inputs = self.weights = ""

    def is_unchanged(self, call: Call) -> bool:
        """Whether the call would see again what it has seen."""
        return self._digests(call) == (self.inputs, self.weights)

    def after(self, call: Call, output: Any) -> Outcome:
        """Compares an output of the call. Never raises."""
        try:
            return self._compared(call, output)
        except Exception as error:  # outputs too, and the eager call is the caller's code
            return Outcome(f"not compared: {type(error).__name__}: {error}")

    def _compared(self, call: Call, output: Any) -> Outcome:
        if call.arguments is None:
            return Outcome("not compared: nobody knows with which inputs a callable calls")
        from cachesvc.runtime.outputs import record, tolerance

        known = find(
            self.attempt.records, call=call.signature, inputs=self.inputs, weights=self.weights
        )
        if known is None:
            return self._with_eager(call, output)
        now = record(call.signature, self.inputs, self.weights, output)
        return _outcome(RECORDED, differences(known, now, tolerance()))

    def _with_eager(self, call: Call, output: Any) -> Outcome:
        from cachesvc.runtime.outputs import compare

        if any(map(is_training, named_models(self.attempt.model).values())):
            return Outcome("not compared: the model is in training mode, so each call differs")
        if not self.is_unchanged(call):
            return Outcome(CHANGES)
        with eagerly():
            expected = call.run()
        return _outcome(EAGER, compare(expected, output))

    def _digests(self, call: Call) -> tuple[str, str]:
        from cachesvc.runtime.outputs import inputs_digest
        from cachesvc.runtime.weights import weights_digest

        if call.arguments is None:
            return "", ""
        return inputs_digest(*call.arguments), weights_digest(self.attempt.model)


def _outcome(said: str, wrong: tuple[str, ...]) -> Outcome:
    return Outcome(f"not {said}: {'; '.join(wrong[:3])}", wrong) if wrong else Outcome(said)
