"""A store that counts what is asked of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source, Target
from cachesvc.store.wrapper import Verb, Wrapper


class Counting(Wrapper):
    """Counts calls by verb, failed ones too, and the bytes of objects that moved as a whole."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: Counter[Verb] = Counter()
        self.bytes: Counter[Verb] = Counter()
        self._lock = threading.Lock()

    def _fetch(self, key: str, target: Target) -> int | None:
        self._called("fetch")
        size = super()._fetch(key, target)
        self._moved("fetch", size or 0)
        return size

    def _put(self, key: str, source: Source) -> None:
        self._called("put")
        super()._put(key, source)
        self._moved("put", source.size)

    def _list(self, prefix: str) -> Iterator[Stat]:
        self._called("list")
        return super()._list(prefix)

    def _stat(self, key: str) -> Stat | None:
        self._called("stat")
        return super()._stat(key)

    def _delete(self, key: str) -> None:
        self._called("delete")
        super()._delete(key)

    def _called(self, verb: Verb) -> None:
        with self._lock:
            self.calls[verb] += 1

    def _moved(self, verb: Verb, size: int) -> None:
        with self._lock:
            self.bytes[verb] += size
