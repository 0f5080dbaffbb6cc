"""Which live directory belongs to what a caller says of trust."""

from __future__ import annotations

from cachesvc.core.digest import digest_json
from cachesvc.core.errors import TccacheError
from cachesvc.start.access import Access
from cachesvc.start.deadline import within


def scope_of(
    said: Access, *, seconds: float | None = None, begun: float | None = None
) -> str | None:
    """The digest of the trust under which live directories are filled; None for a whole store.

    Files of keys are read within `seconds` after `begun`, by `time.perf_counter`. Where they
    cannot be, nothing is brought; then it is a digest that nothing was filled under, so that
    nothing is used either.
    """
    said = said.reading
    if not said.reads_files:
        return said.trusted(()).digest
    try:
        return within(seconds, lambda _: said.trusted(said.signing_keys()).digest, begun=begun)
    except TccacheError:
        return digest_json([[*said.trust], [*said.sign_with], [*said.revoked]])
