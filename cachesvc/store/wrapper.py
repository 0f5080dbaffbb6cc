"""A store around another one. Behaviour is added by wrapping: Retrying(Counting(S3Store(url)))."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source, Target

Verb = Literal["fetch", "put", "list", "stat", "delete"]


class Wrapper(Store):
    """Passes every verb on to `inner`; a subclass changes those that it is about."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url
        self.remote = inner.remote

    def vouch(self, trusted: bool) -> None:
        self.inner.vouch(trusted)

    def _fetch(self, key: str, target: Target) -> int | None:
        return self.inner._fetch(key, target)

    def _put(self, key: str, source: Source) -> None:
        self.inner._put(key, source)

    def _list(self, prefix: str) -> Iterator[Stat]:
        return self.inner._list(prefix)

    def _stat(self, key: str) -> Stat | None:
        return self.inner._stat(key)

    def _delete(self, key: str) -> None:
        self.inner._delete(key)

    def _now(self) -> datetime:
        return self.inner._now()
