"""Proof: what was measured and checked when a bundle was made."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from cachesvc.core.fields import Extra, Fields, with_extra
from cachesvc.core.outputs import OutputRecord
from cachesvc.core.report import Verdict

MAX_OUTPUTS = 64
"""How many outputs a merged proof keeps."""

_VERDICT = re.compile("|".join(verdict.value for verdict in Verdict))


@dataclass(frozen=True, slots=True)
class Proof:
    """What was measured when the bundle was made; seconds of the first call, None if not known.

    `verified` says in sentences what was checked; `outputs` are the outputs of the calls made
    eagerly, so that a start can compare its own.
    """

    cold_s: float | None = None
    warm_s: float | None = None
    verdict: Verdict | None = None
    verified: tuple[str, ...] = ()
    outputs: tuple[OutputRecord, ...] = ()
    extra: Extra = ()

    def to_json(self) -> dict[str, Any]:
        known: dict[str, Any] = {
            "cold_s": self.cold_s,
            "warm_s": self.warm_s,
            "verdict": self.verdict and self.verdict.value,
            "verified": list(self.verified),
        }
        if self.outputs:
            known["outputs"] = [record.to_json() for record in self.outputs]
        return with_extra(known, self.extra)

    @classmethod
    def read(cls, fields: Fields) -> Proof:
        """The proof in these fields; what is wrong with it is added to their issues."""
        verdict = fields.optional_text("verdict", _VERDICT)
        return cls(
            cold_s=fields.optional_number("cold_s"),
            warm_s=fields.optional_number("warm_s"),
            verdict=Verdict(verdict) if verdict in {item.value for item in Verdict} else None,
            verified=fields.texts("verified"),
            outputs=fields.optional_each("outputs", OutputRecord.read),
            extra=fields.rest(),
        )


def carried(proof: Proof | None, older: Iterable[Proof]) -> Proof | None:
    """The proof of a segment that takes the place of others, whose proofs are given oldest first.

    Its seconds, verdict and checks are its own, else the youngest one's. Outputs of other calls,
    inputs or weights than its own are kept, the youngest 64 in all.
    """
    proofs = [*older, *([proof] if proof else [])]
    if not proofs:
        return None
    records = (record for item in proofs for record in item.outputs)
    by_key: dict[tuple[str, str, str], OutputRecord] = {}
    for record in records:
        by_key.pop(record.key, None)  # so that it comes behind those that are older
        by_key[record.key] = record
    return replace(proofs[-1], outputs=tuple(by_key.values())[-MAX_OUTPUTS:])
