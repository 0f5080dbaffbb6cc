"""A store that tries again when the wire is wrong, and never when the data or the rights are."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TypeVar

from cachesvc.core.errors import AccessDenied, StoreError
from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source, Target
from cachesvc.store.wrapper import Wrapper

T = TypeVar("T")


class Retrying(Wrapper):
    """Calls each verb up to `attempts` times as long as it raises StoreError but not AccessDenied.

    The pauses, in seconds, double from `first_pause` up to `longest_pause`; each is multiplied by
    something between a half and one, so that many processes do not come back at the same moment.
    `sleep` gets each pause; it may raise to give up early, as a deadline does. A fetch begins again
    only if what it wrote can be taken back; a listing goes on after the last key that it gave.
    """

    def __init__(
        self,
        inner: Store,
        attempts: int = 4,
        *,
        first_pause: float = 0.5,
        longest_pause: float = 5.0,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        self._attempts = attempts
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._sleep = sleep
        self._chance = chance

    def _fetch(self, key: str, target: Target) -> int | None:
        return self._persist(lambda: self.inner._fetch(key, target), target.restart)

    def _put(self, key: str, source: Source) -> None:
        self._persist(lambda: self.inner._put(key, source))

    def _list(self, prefix: str) -> Iterator[Stat]:
        last = ""
        pauses = self._pauses()
        while True:
            try:
                for stat in self.inner._list(prefix):
                    if stat.key > last:
                        last = stat.key
                        yield stat
                return
            except AccessDenied:
                raise
            except StoreError:
                pause = next(pauses, None)
                if pause is None:
                    raise
            self._sleep(pause)

    def _stat(self, key: str) -> Stat | None:
        return self._persist(lambda: self.inner._stat(key))

    def _delete(self, key: str) -> None:
        self._persist(lambda: self.inner._delete(key))

    def _now(self) -> datetime:
        return self._persist(self.inner._now)

    def _persist(self, call: Callable[[], T], can_repeat: Callable[[], bool] = lambda: True) -> T:
        for pause in self._pauses():
            try:
                return call()
            except AccessDenied:
                raise
            except StoreError:
                if not can_repeat():
                    raise
            self._sleep(pause)
        return call()

    def _pauses(self) -> Iterator[float]:
        for earlier in range(self._attempts - 1):
            pause = min(self._longest_pause, self._first_pause * 2.0**earlier)
            yield pause * (1 + self._chance()) / 2
