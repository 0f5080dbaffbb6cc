"""prefetch: the first line of a program, so that a bundle is brought while torch is imported.

Loads little itself: what is needed is imported in the thread that needs it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from cachesvc.core.address import check_name
from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import UsageError
from cachesvc.core.overlap import Prefetch
from cachesvc.start.access import Access, TrustLike, access
from cachesvc.start.begun import Begun
from cachesvc.start.options import chosen_tier, deadline_seconds
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled


@dataclass(frozen=True, slots=True)
class _Asked:
    """What must be equal for a start to use what a prefetch has begun."""

    label: str
    store: object
    access: Access


def _asked(label: str, store: StoreLike | None, trust: TrustLike | None) -> _Asked:
    place: object = os.environ.get("TCCACHE_STORE") if store is None else store
    if isinstance(place, os.PathLike):
        place = os.fspath(place)
    return _Asked(label, place, access(trust).reading)


_begun: dict[_Asked, Begun] = {}


def prefetch(
    label: str,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    tier: str | None = None,
    compiler: bool = False,
    deadline: float | None = None,
) -> Prefetch:
    """Begins to bring what a store holds under a name, beside the caller, and returns at once.

    To be called before torch is imported, the model built and its weights loaded: `warm_start` with
    the same label, store and trust then goes on with what was begun, and its report tells in
    `prefetched` how much of it was hidden. Everything under the name for this environment is
    brought into the live directory, the newest bundle first. The store is TCCACHE_STORE, whom to
    trust TCCACHE_TRUST, unless given.

    tier: what may be used of a bundle, as for `warm_start`; the best of it is brought.
    compiler: imports torch's compiler in another thread, too, once the program has imported torch.
        Meanwhile other threads, and forks, wait where they import another module of torch. It
        gains what the program waits for its disk or its network, and next to nothing where it
        computes or imports: so call this again, with it, right before the weights are loaded. A
        start that needs no compiler does not need it.
    deadline: seconds (default TCCACHE_DEADLINE, else 300), after which nothing enters the live
        directory any more.

    Called again with the same arguments it begins nothing new. The end of the program does not wait
    for it. Never raises for the store or the cache: the report of the start, and `state`, say what
    went wrong. Raises UsageError for what is no name, no tier or no deadline. Where TCCACHE_DISABLE
    is set, nothing is done.
    """
    if DIGEST.fullmatch(check_name(label)):
        raise UsageError(f"{label} reads as a model digest: give the name that the bundle is under")
    if deadline is not None:
        deadline_seconds(deadline)
    if tier is not None:
        chosen_tier(tier)
    if is_disabled():
        return Begun(label, refusal=DISABLED)
    try:
        asked = _asked(label, store, trust)
    except UsageError as error:  # of whom to trust, which the start tells again
        return Begun(label, refusal=str(error))
    found = _begun.get(asked)
    if found is None or not found.is_own:
        found = Begun(label)
        found.begin(store, trust, tier, deadline)
        _begun[asked] = found
    if compiler:
        found.import_compiler()
    return found


def take(label: str, store: StoreLike | None, trust: TrustLike | None) -> Begun | None:
    """The prefetch that was begun for these in this process, for who goes on with it; once."""
    found = _begun.pop(_asked(label, store, trust), None)
    return found if found is not None and found.is_own else None
