"""A store that fails on purpose, by a plan, so that tests can name each failure."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from cachesvc.core.errors import AccessDenied, StoreError, UsageError
from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source, Target
from cachesvc.store.wrapper import Verb, Wrapper

Failure = Literal["before", "after", "denied", "short", "cut", "wrong"]
EVER = 1 << 62
"""A count for a failure that never ends."""

_OF_WHAT_IS_READ = {"short": ("fetch", "list"), "cut": ("fetch",), "wrong": ("fetch",)}


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to calls number `first` to `first + count - 1` of one verb.

    Only calls whose key or prefix ends with `suffix` are counted.
    before  StoreError, and nothing was done
    after   StoreError, though it was done
    denied  AccessDenied, and nothing was done
    short   StoreError, after half of what was asked for has come
    cut     the first half comes as if it were all
    wrong   as many bytes come as should, the middle one of them changed
    """

    verb: Verb
    failure: Failure
    first: int = 1
    count: int = 1
    suffix: str = ""

    def __post_init__(self) -> None:
        if self.verb not in _OF_WHAT_IS_READ.get(self.failure, (self.verb,)):
            raise UsageError(f"the failure {self.failure!r} cannot happen to {self.verb}")


class Faulty(Wrapper):
    """Does to `inner`'s answers what the plan says; where faults overlap, the first one wins."""

    def __init__(self, inner: Store, plan: Iterable[Fault] = ()) -> None:
        super().__init__(inner)
        self._plan = tuple(plan)
        self._seen = [0] * len(self._plan)
        self._lock = threading.Lock()

    def _fetch(self, key: str, target: Target) -> int | None:
        failure = self._failure("fetch", key)
        if failure not in _OF_WHAT_IS_READ:
            size = super()._fetch(key, target)
            self._fail_after(failure, key)
            return size
        whole = io.BytesIO()
        size = super()._fetch(key, Target(whole, EVER, key))
        return None if size is None else _damage(failure, whole.getvalue(), target)

    def _put(self, key: str, source: Source) -> None:
        failure = self._failure("put", key)
        super()._put(key, source)
        self._fail_after(failure, key)

    def _list(self, prefix: str) -> Iterator[Stat]:
        failure = self._failure("list", prefix)
        found = tuple(super()._list(prefix))
        yield from islice(found, len(found) // 2 if failure == "short" else None)
        if failure == "short":
            raise StoreError(f"the list of {prefix} in {self.url} broke off, as planned")
        self._fail_after(failure, prefix)

    def _stat(self, key: str) -> Stat | None:
        failure = self._failure("stat", key)
        found = super()._stat(key)
        self._fail_after(failure, key)
        return found

    def _delete(self, key: str) -> None:
        failure = self._failure("delete", key)
        super()._delete(key)
        self._fail_after(failure, key)

    def _failure(self, verb: Verb, key: str) -> Failure | None:
        """What the plan has for this call; raises what it has for before the call."""
        failure = next(iter(self._due(verb, key)), None)
        if failure == "denied":
            raise AccessDenied(f"{verb} of {key} in {self.url} was denied, as planned")
        if failure == "before":
            raise StoreError(f"{verb} of {key} in {self.url} failed, as planned")
        return failure

    def _due(self, verb: Verb, key: str) -> list[Failure]:
        due = []
        with self._lock:
            for index, fault in enumerate(self._plan):
                if fault.verb == verb and key.endswith(fault.suffix):
                    self._seen[index] += 1
                    if 0 <= self._seen[index] - fault.first < fault.count:
                        due.append(fault.failure)
        return due

    def _fail_after(self, failure: Failure | None, key: str) -> None:
        if failure == "after":
            raise StoreError(f"no answer about {key} came from {self.url}, as planned")


def _damage(failure: Failure | None, data: bytes, target: Target) -> int:
    """Gives `target` less than it should get, or something else."""
    middle = len(data) // 2
    if failure == "short":
        return target.receive(len(data), [data[:middle]])
    if failure == "cut":
        return target.receive(middle, [data[:middle]])
    flipped = bytes([data[middle] ^ 1]) if data else b""
    return target.receive(len(data), [data[:middle], flipped, data[middle + 1 :]])
