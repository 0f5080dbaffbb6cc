"""What the caller leaves unsaid, from the environment variables TCCACHE_*."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cachesvc.core.errors import UsageError
from cachesvc.start.access import Access, TrustLike, access
from cachesvc.store.contract import Store
from cachesvc.store.location import check_format, open_store

if TYPE_CHECKING:
    from cachesvc.repository.repository import Repository

DISABLED = "TCCACHE_DISABLE is set: nothing was done"

StoreLike = str | os.PathLike[str] | Store


def is_disabled() -> bool:
    """Whether TCCACHE_DISABLE switches this library off."""
    return os.environ.get("TCCACHE_DISABLE", "") not in ("", "0")


def open_repository(
    store: StoreLike | None, trust: TrustLike | None, *, signs: bool = False
) -> Repository:
    """The repository in a store, or in the one that TCCACHE_STORE names.

    Raises what `chosen_repository` raises, IntegrityError for a store of another format, StoreError
    if it cannot be reached.
    """
    repository = chosen_repository(store, trust, signs=signs)
    check_format(repository.store)
    return repository


def chosen_repository(
    store: StoreLike | None, trust: TrustLike | None, *, signs: bool = False
) -> Repository:
    """The same, and no request is made yet.

    Only with `signs` the keys that sign are read, unless they are all that is said of trust. Raises
    what `chosen_store` raises, UsageError for files of keys that are none, UntrustedError for files
    that others could write, and for a private key that others can read.
    """
    from cachesvc.repository.repository import Repository

    said = access(trust) if signs else access(trust).reading
    opened = chosen_store(store, said)
    keys = said.signing_keys()
    return Repository(opened, said.trusted(keys), keys)


def chosen_store(store: StoreLike | None, said: Access) -> Store:
    """The store, or the one that TCCACHE_STORE names.

    Raises UsageError without a store, UntrustedError for one that others can write to and nobody
    vouches for.
    """
    place = store if store is not None else os.environ.get("TCCACHE_STORE")
    if not place:
        raise UsageError(
            "no store was given: name one (a directory, s3://BUCKET/PREFIX or another fsspec URL),"
            " or set TCCACHE_STORE"
        )
    return open_store(place, trusted=said.is_said)
