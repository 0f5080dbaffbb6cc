"""What lies in a live directory from an earlier start that trusted somebody else."""

from __future__ import annotations

from collections.abc import Iterator

from cachesvc.core.manifest import Origin
from cachesvc.core.trust import Trust
from cachesvc.local.evict import evict
from cachesvc.local.places import Places


def evict_untrusted(places: Places, trust: Trust) -> Iterator[str]:
    """Removes what was seeded here and is not trusted any more; says so.

    Nothing is removed where the store as a whole is trusted. Raises what `evict` raises.
    """
    if trust.digest is None:
        return
    if count := evict(places, lambda origin, signers: _is_trusted(trust, origin, signers)):
        yield (
            f"{count} units that an earlier start had brought were removed from {places.root}: they"
            " are not signed by a key that this one trusts, or are revoked"
        )


def _is_trusted(trust: Trust, origin: Origin, signers: frozenset[str]) -> bool:
    return origin.segment not in trust.revoked and trust.signature_issue(signers) is None
