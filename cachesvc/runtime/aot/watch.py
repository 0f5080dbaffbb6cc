"""Things that are watched together: one cheap look at all, a closer one at what has moved."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from gc import get_referents
from operator import is_
from typing import Any

from cachesvc.runtime.aot.words import Layout, Words, dict_words, layout

ABSENT = object()
_SMALL = 1 << 12  # bytes
Same = Callable[[], bool]


class Watch:
    """Checks, each with the words of memory that tell when it has to be made.

    One without words is made at every look, and all are where Python keeps no such words.
    """

    def __init__(self) -> None:
        self.layout: Layout | None = layout()
        self._checks: list[Same] = []
        self._loose: list[Same] = []
        self._owners: list[int] = []
        self._addresses: list[int] = []
        self._kept: list[object] = []
        self._seen: set[int] = set()
        self._words: Words | None = None

    def is_whole(self) -> bool:
        """Whether all is as it was. Other threads may ask at the same time."""
        words = self._words
        if words is None:
            return all(same() for same in self._checks) and self._is_loose_same()
        now = words.moved()
        if now is not None:
            moved = {self._owners[index] for index in words.which(now)}
            if not all(self._checks[owner]() for owner in moved):
                return False
            # Only now: another thread must not take for unchanged what was not looked at yet.
            words.settle(now)
        return self._is_loose_same()

    def close(self) -> None:
        """Nothing more is added: the words are read for the first time.

        What the checks compare with MUST have been taken before, or be compared once more.
        """
        if self.layout is not None and self._addresses:
            self._words = Words(self._addresses)

    def add(self, same: Same, words: list[int], *kept: object) -> None:
        """A check; `kept` must stay alive as long as the words of it are read."""
        owner = len(self._checks)
        self._kept += kept
        if self.layout is None or words:
            self._checks.append(same)
            self._addresses += words
            self._owners += [owner] * len(words)
        else:
            self._loose.append(same)

    def add_loose(self, same: Same) -> None:
        """A check of what no word tells about."""
        self._loose.append(same)

    def entries(self, holder: dict[Any, Any], names: tuple[Any, ...]) -> None:
        """Some entries of a dictionary; what else it holds may change."""
        before = [holder.get(name, ABSENT) for name in names]
        self.add(
            lambda: all(map(is_, [holder.get(name, ABSENT) for name in names], before)),
            self.words_of(holder),
            holder,
        )

    def items(self, holder: dict[Any, Any]) -> None:
        """All that a dictionary holds, and in which order."""
        if not holder:
            self.add(lambda: not holder, self.words_of(holder), holder)
            return
        before = dict(holder)
        self.add(lambda: same_items(holder, before), self.words_of(holder), holder)
        if isinstance(holder, OrderedDict) and len(holder) > 1:
            order = list(holder)  # moving an entry to the end leaves no trace in its words
            self._loose.append(lambda: list(holder) == order)

    def sequence(self, holder: list[Any]) -> None:
        """The items of a list."""
        before = list(holder)
        self._loose.append(lambda: len(holder) == len(before) and all(map(is_, holder, before)))

    def partial(self, value: partial[Any]) -> None:
        """What a partial function calls, and with what."""
        before = (value.func, value.args, value.keywords)
        self._loose.append(lambda: all(map(is_, (value.func, value.args, value.keywords), before)))

    def array(self, value: Any) -> None:
        """An array of numpy's: its values too, where it is small."""
        before = _array(value)
        self._loose.append(lambda: bool(_array(value) == before))

    def words_of(self, holder: dict[Any, Any]) -> list[int]:
        """The words of a dictionary."""
        return [] if self.layout is None else dict_words(holder, self.layout)

    def is_new(self, value: object) -> bool:
        """Whether a value is met for the first time."""
        if id(value) in self._seen:
            return False
        self._seen.add(id(value))
        self._kept.append(value)
        return True

    def _is_loose_same(self) -> bool:
        return all(same() for same in self._loose)


def held(space: Mapping[Any, Any]) -> dict[Any, Any]:
    """The dictionary behind a view of one, such as a class has."""
    found = space if isinstance(space, dict) else next(iter(get_referents(space)), None)
    return found if isinstance(found, dict) else dict(space)


def _array(value: Any) -> tuple[Any, ...]:
    small = value.nbytes <= _SMALL and not value.dtype.hasobject
    return value.shape, value.strides, value.dtype, value.tobytes() if small else b""


def same_items(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether two dictionaries hold the same objects under the same keys, in the same order."""
    return (
        len(now) == len(before)
        and list(now) == list(before)
        and all(map(is_, now.values(), before.values()))
    )
