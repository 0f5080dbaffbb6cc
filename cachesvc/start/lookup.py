"""lookup: would this machine start warm?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachesvc.core.components import Components
from cachesvc.core.proof import Proof
from cachesvc.start.access import TrustLike
from cachesvc.start.bundles import select
from cachesvc.start.settings import StoreLike, open_repository
from cachesvc.start.target import EnvironmentLike
from cachesvc.start.transfer import holdings


@dataclass(frozen=True, slots=True)
class Found:
    """What the store holds for a model here: a hit if at least one unit can be used."""

    bundles: tuple[str, ...]
    units: int = 0
    bytes: int = 0
    pack_bytes: int = 0
    left_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    coverage: tuple[str, ...] = ()
    proof: Proof | None = None
    environment: Components = Components()

    @property
    def hit(self) -> bool:
        return self.units > 0


def lookup(
    model: Any,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    label: str | None = None,
    environment: EnvironmentLike | None = None,
    salt: str | None = None,
) -> Found:
    """What a pull of the same arguments would find; nothing is brought, nothing is written.

    Raises UsageError, UntrustedError, IntegrityError, StoreError, AccessDenied.
    """
    repository = open_repository(store, trust)
    chosen = select(repository, model, label=label, environment=environment, salt=salt)
    found = holdings(repository, chosen.bundles, foreign=chosen.foreign)
    newest = found.newest
    return Found(
        bundles=found.addresses,
        units=len(found.units),
        bytes=sum(unit.size for unit in found.units.values()),
        pack_bytes=sum(segment.manifest.pack.size for segment in found.segments),
        left_out=found.left_out,
        refused=tuple(refused.reason for refused in found.refused),
        coverage=tuple(sorted({text for s in found.segments for text in s.manifest.coverage})),
        proof=newest.proof if newest else None,
        environment=newest.environment if newest else Components(),
    )
