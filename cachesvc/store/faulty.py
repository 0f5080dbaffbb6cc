"""A store that fails on purpose, by a plan, so that tests can name each failure."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NoReturn, get_args

from cachesvc.core.errors import AccessDenied, StoreError, UsageError
from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source, Target
from cachesvc.store.wrapper import Verb, Wrapper

Failure = Literal[
    "before",
    "after",
    "denied",
    "hidden",
    "expired",
    "skewed",
    "throttled",
    "short",
    "reset",
    "cut",
    "wrong",
    "slow",
    "hang",
    "stall",
]
FAILURES: tuple[Failure, ...] = get_args(Failure)
EVER = 1 << 62
"""A count for a failure that never ends."""

_ONLY: Mapping[Failure, tuple[Verb, ...]] = {
    "hidden": ("fetch", "stat"),
    "short": ("fetch", "list"),
    "reset": ("fetch", "list"),
    "stall": ("fetch", "list"),
    "cut": ("fetch",),
    "wrong": ("fetch",),
}
_HALF = ("short", "reset", "stall")
_DAMAGES = (*_HALF, "cut", "wrong")
_REFUSALS: Mapping[str, tuple[type[StoreError], str]] = {
    "before": (StoreError, "failed"),
    "denied": (AccessDenied, "was denied"),
    "hidden": (AccessDenied, "was denied: that, or there is no such object"),
    "expired": (AccessDenied, "was denied: the token has expired; renew it"),
    "skewed": (AccessDenied, "was denied: this machine's clock is wrong; set it"),
    "throttled": (StoreError, "failed: the store is throttling; try again later"),
    "hang": (StoreError, "got no answer"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to calls number `first` to `first + count - 1` of one verb.

    Only calls whose key or prefix ends with `suffix` are counted.
    before     StoreError, and nothing was done
    after      StoreError, though it was done
    denied     AccessDenied, and nothing was done
    hidden     AccessDenied if there is no such object, as where nothing may be listed
    expired    AccessDenied: the token has expired; nothing was done
    skewed     AccessDenied: the clocks differ; nothing was done
    throttled  StoreError: 503, slow down; nothing was done
    short      StoreError, after half of what was asked for has come
    reset      as `short`, by a connection that breaks
    cut        the first half comes as if it were all
    wrong      as many bytes come as should, the middle one of them changed
    slow       nothing comes until the store's `wait` returns, then all is done
    hang       nothing comes until `wait` returns, then StoreError, and nothing was done
    stall      half of what was asked for comes, no more until `wait` returns, then StoreError
    """

    verb: Verb
    failure: Failure
    first: int = 1
    count: int = 1
    suffix: str = ""

    def __post_init__(self) -> None:
        if self.verb not in _ONLY.get(self.failure, (self.verb,)):
            raise UsageError(f"the failure {self.failure!r} cannot happen to {self.verb}")


class Faulty(Wrapper):
    """Does to `inner`'s answers what the plan says; where faults overlap, the first one wins.

    `wait` is what a store does that does not answer: it waits for ever unless another is given.
    """

    def __init__(
        self,
        inner: Store,
        plan: Iterable[Fault] = (),
        *,
        wait: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(inner)
        self._plan = tuple(plan)
        self._wait = wait or threading.Event().wait
        self._seen = [0] * len(self._plan)
        self._lock = threading.Lock()

    def _fetch(self, key: str, target: Target) -> int | None:
        failure = self._failure("fetch", key)
        if failure not in _DAMAGES:
            size = super()._fetch(key, target)
            self._fail_after(failure, key)
            return size
        whole = io.BytesIO()
        if super()._fetch(key, Target(whole, EVER, key)) is None:
            return None
        return self._damage(failure, whole.getvalue(), target, key)

    def _put(self, key: str, source: Source) -> None:
        failure = self._failure("put", key)
        super()._put(key, source)
        self._fail_after(failure, key)

    def _list(self, prefix: str) -> Iterator[Stat]:
        failure = self._failure("list", prefix)
        found = tuple(super()._list(prefix))
        yield from islice(found, len(found) // 2 if failure in _HALF else None)
        if failure in _HALF:
            self._break_off(failure, prefix)
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
        if failure in ("slow", "hang"):
            self._wait()
        if failure == "hidden" and super()._stat(key) is not None:
            return None
        if failure is not None and failure in _REFUSALS:
            kind, what = _REFUSALS[failure]
            raise kind(f"{verb} of {key} in {self.url} {what}, as planned")
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

    def _damage(self, failure: Failure | None, data: bytes, target: Target, key: str) -> int:
        """Gives `target` less than it should get, or something else."""
        half, rest = data[: len(data) // 2], data[len(data) // 2 :]
        if failure == "cut":
            return target.receive(len(half), [half])
        if failure == "wrong":
            flipped = bytes([rest[0] ^ 1]) if rest else b""
            return target.receive(len(data), [half, flipped, rest[1:]])
        return target.receive(len(data), self._broken(failure, half, key))

    def _broken(self, failure: Failure | None, half: bytes, key: str) -> Iterator[bytes]:
        yield half
        if failure != "short":
            self._break_off(failure, key)

    def _break_off(self, failure: Failure | None, key: str) -> NoReturn:
        if failure == "stall":
            self._wait()
        raise StoreError(f"what came of {key} from {self.url} broke off, as planned")
