"""What a build did: the value that it answers with."""

from __future__ import annotations

from dataclasses import dataclass

from cachesvc.core.address import Address
from cachesvc.core.digest import Json
from cachesvc.core.report import Verdict


@dataclass(frozen=True, slots=True)
class BuiltCall:
    """One call as it was made in three processes; seconds of each, first time in the process.

    `difference` is the greatest absolute difference of the verified output from the eager one,
    None where it holds no tensor. `random` are the paths whose values depend on random numbers.
    """

    signature: str
    eager_s: float
    cold_s: float
    warm_s: float
    difference: float | None
    random: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "signature": self.signature,
            "eager_s": self.eager_s,
            "cold_s": self.cold_s,
            "warm_s": self.warm_s,
            "max_abs_difference": self.difference,
            "random": list(self.random),
        }


@dataclass(frozen=True, slots=True)
class Built:
    """A target that was compiled, verified and, unless `dry_run`, published.

    `functions` were compiled ahead of time, verified, and make the first call in `aot_s`; where
    there are none, or not for all calls, `aot_reasons` say why.

    `cold_s` and `warm_s` are seconds from the start's own beginning to the first result: all that
    a warm start does before, the pull too. `segment` is None if nothing was written: in a dry run,
    or because the store had all of it. `reasons` say why a verdict is not `warm`, and `verified`
    what was checked.
    """

    target: str
    address: Address
    verdict: Verdict
    cold_s: float
    warm_s: float
    calls: tuple[BuiltCall, ...]
    verified: tuple[str, ...]
    units: int
    files: int
    bytes: int
    pack_bytes: int
    segment: str | None = None
    added: int = 0
    dry_run: bool = False
    reasons: tuple[str, ...] = ()
    functions: int = 0
    aot_s: float | None = None
    aot_reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """The build as plain JSON values; seconds are floats."""
        return {
            "target": self.target,
            "bundle": str(self.address),
            "address": {
                "name": self.address.name,
                "model": self.address.model,
                "environment": self.address.environment,
            },
            "verdict": self.verdict.value,
            "cold_s": self.cold_s,
            "warm_s": self.warm_s,
            "calls": [call.to_json() for call in self.calls],
            "verified": list(self.verified),
            "reasons": list(self.reasons),
            "functions": self.functions,
            "aot_s": self.aot_s,
            "aot_reasons": list(self.aot_reasons),
            "segment": self.segment,
            "units": self.units,
            "added": self.added,
            "files": self.files,
            "bytes": self.bytes,
            "pack_bytes": self.pack_bytes,
            "dry_run": self.dry_run,
            "warnings": list(self.warnings),
        }
